"""A verifier's differentiable forward in which evicted positions are seen through restored K/V.

Query i attends to its own keys j with j <= i and (j < sink or j > i - window), and to restored ones
with sink <= j <= i - window: the rule of the cache that will serve. Written for verifiers of
Qwen3's and Llama's form: normed input, rotary attention, gated feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.func import functional_call
from torch.nn import functional
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.projection import Projection, Source
from scripts.train.drafter_model import Drafter
from scripts.train.layer_parts import joined_heads, normed, split_heads


@dataclass(frozen=True)
class Seen:
    """What one forward gave."""

    hidden: torch.Tensor
    """Normed last hidden states [rows, n, hidden]."""
    taps: torch.Tensor
    """The tapped layers' outputs, concatenated, [rows, n, taps * hidden]."""
    keys_values: list[tuple[torch.Tensor, torch.Tensor]]
    """Each layer's own rotated keys and values [rows, kv_heads, n, head_dim]."""
    plain_keys: list[torch.Tensor]
    """Each layer's keys before the rotation."""


@dataclass(frozen=True)
class Eviction:
    """What is restored, and for whom."""

    sink: int
    window: int
    restored: list[tuple[torch.Tensor, torch.Tensor]]
    """Each layer's keys and values, as `Seen.keys_values`."""


def restore(
    projection: Projection, vectors: torch.Tensor, drafter: Drafter
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each layer's keys and values [rows, kv_heads, n, head_dim] of vectors [rows, n, width].

    A map from the drafter's context keys and values sees the drafter as it is now.
    """
    rows, count, _ = vectors.shape
    positions = torch.arange(count, device=vectors.device).repeat(rows)
    layers = functional_call(
        projection, drafter_part(projection, drafter), (vectors.flatten(0, 1), positions)
    )
    return [
        tuple(part.unflatten(1, (rows, count)).transpose(0, 1) for part in layer)
        for layer in layers
    ]


def drafter_part(projection: Projection, drafter: Drafter) -> dict[str, torch.Tensor]:
    """What a map from the drafter's context keys and values holds of the drafter, by name."""
    if projection.config.source is not Source.KEYS_VALUES:
        return {}
    attentions: list[Any] = [layer.self_attn for layer in drafter.layers]
    weights = [
        part.weight for attention in attentions for part in (attention.k_proj, attention.v_proj)
    ]
    norms = [attention.k_norm.weight for attention in attentions]
    return {"drafter.weight": torch.cat(weights), "drafter_key_norms": torch.stack(norms)}


def run_verifier(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    taps: tuple[int, ...],
    eviction: Eviction | None = None,
) -> Seen:
    """Runs `tokens` [rows, n]; full attention where nothing is evicted."""
    body = model.model
    count = tokens.shape[1]
    hidden = body.embed_tokens(tokens)
    positions = torch.arange(count, device=tokens.device)[None]
    cos, sin = body.rotary_emb(hidden, positions)
    rotation = torch.stack([cos, sin], dim=2)[:, None]
    query, key = positions[0][:, None], positions[0][None, :]
    causal = key <= query
    local, evicted = causal, None
    if eviction is not None:
        evicted = causal & (key >= eviction.sink) & (key <= query - eviction.window)
        local = causal & ~evicted
    outputs = []
    kept = []
    plain = []
    for index, layer in enumerate(body.layers):
        heads = split_heads(layer.self_attn, normed(layer.input_layernorm, hidden), rotation)
        queries, keys, values = heads.queries, heads.keys, heads.values
        kept.append((keys, values))
        plain.append(heads.plain_keys)
        if eviction is None or evicted is None:
            found = functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=True
            )
        else:
            past_keys, past_values = eviction.restored[index]
            found = functional.scaled_dot_product_attention(
                queries,
                torch.cat([past_keys.to(keys.dtype), keys], dim=2),
                torch.cat([past_values.to(values.dtype), values], dim=2),
                attn_mask=torch.cat([evicted, local], dim=1)[None, None],
                enable_gqa=True,
            )
        hidden = joined_heads(layer, hidden, found)
        outputs.append(hidden)
    return Seen(
        hidden=normed(body.norm, hidden),
        taps=torch.cat([outputs[tap] for tap in taps], dim=-1),
        keys_values=kept,
        plain_keys=plain,
    )
