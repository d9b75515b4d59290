"""The weights of a drafter's layers, joined into as few products as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, DraftLayerRule


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """One layer. Products are [in, out] in the drafter's dtype, gains float32.

    `head_norm` [heads + kv_heads, head_dim] is of queries and keys; the scale of
    scores, head_dim ** -0.5, is part of the queries' gain.
    """

    rule: DraftLayerRule
    attention_norm: mx.array
    queries_keys_values: mx.array
    head_norm: mx.array
    output: mx.array
    inner_norm: mx.array
    gate_up: mx.array
    down: mx.array

    @property
    def arrays(self) -> list[mx.array]:
        """All of its weights."""
        return [
            self.attention_norm,
            self.queries_keys_values,
            self.head_norm,
            self.output,
            self.inner_norm,
            self.gate_up,
            self.down,
        ]


def product(values: mx.array, weight: mx.array) -> mx.array:
    """[n, out] float32 of `values` [n, in] float32 and `weight` [in, out], in its dtype."""
    return (values.astype(weight.dtype) @ weight).astype(mx.float32)


def normed(values: mx.array, gain: mx.array, eps: float) -> mx.array:
    """Root mean square norm of `values` [..., n] times `gain` (Zhang and Sennrich, 2019)."""
    squares = mx.mean(values * values, axis=-1, keepdims=True)
    return values * mx.rsqrt(squares + eps) * gain


def turned(heads: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """`heads` [..., head_dim] turned by angles of `Angles.of` that broadcast against it."""
    return heads * cos + mx.roll(heads, heads.shape[-1] // 2, -1) * sin


def draft_layers(weights: Mapping[str, mx.array], config: DFlashConfig) -> tuple[DraftLayer, ...]:
    """All layers, from a checkpoint's tensors by their stored names. All is computed."""
    layers = tuple(
        _layer(weights, f"layers.{index}.", config, rule) for index, rule in enumerate(config.rules)
    )
    mx.eval([layer.arrays for layer in layers])
    return layers


def _layer(
    weights: Mapping[str, mx.array], name: str, config: DFlashConfig, rule: DraftLayerRule
) -> DraftLayer:
    def weight(part: str) -> mx.array:
        return weights[f"{name}{part}.weight"]

    def joined(*parts: str) -> mx.array:
        return mx.contiguous(mx.concatenate([weight(part) for part in parts]).T)

    queries = mx.repeat(weight("self_attn.q_norm")[None], config.heads, axis=0)
    keys = mx.repeat(weight("self_attn.k_norm")[None], config.kv_heads, axis=0)
    return DraftLayer(
        rule=rule,
        attention_norm=weight("input_layernorm"),
        queries_keys_values=joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        head_norm=mx.concatenate([queries * config.head_dim**-0.5, keys]),
        output=joined("self_attn.o_proj"),
        inner_norm=weight("post_attention_layernorm"),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"),
        down=joined("mlp.down_proj"),
    )


class ContextProjection:
    """Keys and values of context positions in all layers, by one product.

    Those of a position are a function of its vector and its place alone.
    """

    def __init__(self, weights: Mapping[str, mx.array], config: DFlashConfig) -> None:
        layers = range(config.layer_count)
        parts = [
            weights[f"layers.{index}.self_attn.{part}.weight"]
            for part in ("k_proj", "v_proj")
            for index in layers
        ]
        norms = [weights[f"layers.{index}.self_attn.k_norm.weight"] for index in layers]
        self._weight = mx.contiguous(mx.concatenate(parts).T)
        self._gain = mx.stack(norms)[:, None, :]
        self._eps = config.norm_eps
        self._shape = (2, config.layer_count, config.kv_heads, config.head_dim)
        mx.eval(self._weight, self._gain)

    def keys_values(self, vectors: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        """[2, layers, kv_heads, n, head_dim] of `vectors` [n, hidden_size], keys first.

        `cos` and `sin` [n, head_dim] are the angles of their positions. Not computed yet.
        """
        made = product(vectors, self._weight).reshape(len(vectors), *self._shape)
        keys = normed(made[:, 0], self._gain, self._eps)
        keys = turned(keys, cos[:, None, None], sin[:, None, None])
        return mx.stack([keys, made[:, 1]]).transpose(0, 2, 3, 1, 4)
