"""A verifier's differentiable forwards: of full attention, and one that sees restored K/V.

Query i attends to its own keys j with j <= i and (j < sink or j > i - window), and to restored ones
with sink <= j <= i - window: the rule of the cache that will serve. Written for verifiers of
Qwen3's and Llama's form: normed input, rotary attention, gated feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable
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


KeysValues = list[tuple[torch.Tensor, torch.Tensor]]
"""Rotated keys and values [rows, kv_heads, n, head_dim], of each layer or of each stretch."""


@dataclass(frozen=True)
class Restored:
    """What a forward gave that saw restored keys and values."""

    hidden: torch.Tensor
    """Normed last hidden states [rows, n, hidden]."""
    keys_values: KeysValues
    """What was restored of every layer: of all positions, those in the window, too."""


def restore(
    projection: Projection, vectors: torch.Tensor, drafter: Drafter, first: int = 0
) -> KeysValues:
    """Keys and values of vectors [rows, n, width], whose positions begin with `first`.

    A map from the drafter's context keys and values sees the drafter as it is now.
    """
    rows, count, _ = vectors.shape
    positions = torch.arange(first, first + count, device=vectors.device).repeat(rows)
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


def run_verifier(model: PreTrainedModel, tokens: torch.Tensor, taps: tuple[int, ...]) -> Seen:
    """Runs `tokens` [rows, n] with full attention."""
    body = model.model
    hidden = body.embed_tokens(tokens)
    rotation = _rotation(body, hidden, 0)
    outputs = []
    kept = []
    plain = []
    for layer in body.layers:
        heads = split_heads(layer.self_attn, normed(layer.input_layernorm, hidden), rotation)
        kept.append((heads.keys, heads.values))
        plain.append(heads.plain_keys)
        found = functional.scaled_dot_product_attention(
            heads.queries, heads.keys, heads.values, is_causal=True, enable_gqa=True
        )
        hidden = joined_heads(layer, hidden, found)
        outputs.append(hidden)
    return Seen(
        hidden=normed(body.norm, hidden),
        taps=torch.cat([outputs[tap] for tap in taps], dim=-1),
        keys_values=kept,
        plain_keys=plain,
    )


def run_restored(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    taps: tuple[int, ...],
    restored_of: Callable[[torch.Tensor, int], KeysValues],
    *,
    sink: int,
    window: int,
) -> Restored:
    """Runs `tokens` [rows, n], what left the window seen as `restored_of` makes it of its taps.

    `restored_of(taps [rows, m, taps * hidden], first)` gives the keys and values of positions from
    `first` on. As a session has it: stretches of `window` positions, whose taps are of a forward
    that itself saw what was restored of those before. No gradient goes by way of the taps.

    Raises:
        ValueError: the sink is larger than the window, of whose size stretches are.
    """
    if sink > window:
        raise ValueError(f"a sink of {sink} positions is larger than the window of {window}")
    body = model.model
    own: list[KeysValues] = [[] for _ in body.layers]
    past: list[KeysValues] = [[] for _ in body.layers]
    hidden = []
    for first in range(0, tokens.shape[1], window):
        state = body.embed_tokens(tokens[:, first : first + window])
        rotation = _rotation(body, state, first)
        seen = _seen_by_stretch(first, state.shape[1], sink, window).to(state.device)
        outputs = []
        for index, layer in enumerate(body.layers):
            heads = split_heads(layer.self_attn, normed(layer.input_layernorm, state), rotation)
            own[index].append((heads.keys, heads.values))
            # What a stretch sees of itself, of the one before it, and of the first, for the sink.
            kept = [*past[index], *own[index][-2:]]
            if first > window:
                keys, values = own[index][0]
                kept.append((keys[:, :, :sink], values[:, :, :sink]))
            keys, values = _joined(kept, heads.queries.dtype)
            found = functional.scaled_dot_product_attention(
                heads.queries, keys, values, attn_mask=seen, enable_gqa=True
            )
            state = joined_heads(layer, state, found)
            outputs.append(state)
        hidden.append(normed(body.norm, state))
        made = restored_of(torch.cat([outputs[tap] for tap in taps], dim=-1).detach(), first)
        for so_far, new in zip(past, made, strict=True):
            so_far.append(new)
    return Restored(torch.cat(hidden, dim=1), [_joined(parts, torch.float32) for parts in past])


def _joined(parts: KeysValues, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [rows, kv_heads, n, head_dim] of stretches, one behind the other."""
    keys, values = zip(*parts, strict=True)
    return (
        torch.cat([part.to(dtype) for part in keys], dim=2),
        torch.cat([part.to(dtype) for part in values], dim=2),
    )


def _rotation(body: Any, hidden: torch.Tensor, first: int) -> torch.Tensor:
    """Cosines and sines of the positions of `hidden` [rows, n, hidden], from `first` on."""
    positions = torch.arange(first, first + hidden.shape[1], device=hidden.device)[None]
    return torch.stack(body.rotary_emb(hidden, positions), dim=2)[:, None]


def _seen_by_stretch(first: int, count: int, sink: int, window: int) -> torch.Tensor:
    """Which keys `count` queries from `first` on see, bool [count, keys].

    Those restored of all before `first`, then their own of the stretch before and of theirs, then
    the sink's where it is in neither.
    """
    queries = torch.arange(first, first + count)[:, None]
    past = torch.arange(first)[None]
    own = torch.arange(max(0, first - window), first + count)[None]
    evicted = (past >= sink) & (past <= queries - window)
    near = (own <= queries) & ((own < sink) | (own > queries - window))
    parts = [evicted, near]
    if first > window:
        parts.append(torch.ones(count, sink, dtype=torch.bool))
    return torch.cat(parts, dim=1)
