"""Parts of a layer of Qwen3's or Llama's form, for forwards that keep their own keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from scripts.train.drafter_model import rotate


@dataclass(frozen=True)
class Heads:
    """What attention takes of n positions, [rows, heads or kv_heads, n, head_dim] each."""

    queries: torch.Tensor
    """Rotated."""
    keys: torch.Tensor
    """Rotated."""
    values: torch.Tensor
    plain_keys: torch.Tensor
    """Before the rotation."""


def normed(norm: Any, values: torch.Tensor) -> torch.Tensor:
    """`norm` of the last dimension as one operation: the library's own takes seven."""
    weight = norm.weight
    values = values.to(weight.dtype)
    return functional.rms_norm(values, weight.shape, weight, norm.variance_epsilon)


def split_heads(attention: Any, hidden: torch.Tensor, rotation: torch.Tensor) -> Heads:
    """The heads of `attention` for normed states [rows, n, hidden], turned by `rotation`."""
    split = (*hidden.shape[:2], -1, attention.head_dim)
    queries = attention.q_proj(hidden).view(split)
    keys = attention.k_proj(hidden).view(split)
    if hasattr(attention, "q_norm"):
        queries, keys = normed(attention.q_norm, queries), normed(attention.k_norm, keys)
    keys = keys.transpose(1, 2)
    values = attention.v_proj(hidden).view(split).transpose(1, 2)
    return Heads(rotate(queries.transpose(1, 2), rotation), rotate(keys, rotation), values, keys)


def joined_heads(layer: Any, hidden: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """The layer's output: `hidden` with what its heads `found` and its feed-forward added."""
    hidden = hidden + layer.self_attn.o_proj(found.transpose(1, 2).flatten(2))
    changed: torch.Tensor = layer.mlp(normed(layer.post_attention_layernorm, hidden))
    return hidden + changed
