"""The products and norms of a drafter, joined into as few as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, DraftLayerRule
from kakeya_fleet.engine.backends.dflash.kernels import Array, DraftKernels, Map, Turns


@dataclass(frozen=True, slots=True)
class DraftLayer(Generic[Array]):
    """One layer. `head_norm` is of queries and keys [n, heads + kv_heads, head_dim].

    The scale of scores, head_dim ** -0.5, is part of the queries' gain.
    `queries_keys_values` and `gate_up` norm their input first.
    """

    rule: DraftLayerRule
    queries_keys_values: Map[Array]
    head_norm: Map[Array]
    output: Map[Array]
    gate_up: Map[Array]
    down: Map[Array]


def draft_layers(
    kernels: DraftKernels[Array], weights: Mapping[str, Array], config: DFlashConfig
) -> tuple[DraftLayer[Array], ...]:
    """All layers, from a checkpoint's tensors by their stored names."""
    return tuple(
        _layer(kernels, weights, f"layers.{index}.", config, rule)
        for index, rule in enumerate(config.rules)
    )


def _layer(
    kernels: DraftKernels[Array],
    weights: Mapping[str, Array],
    name: str,
    config: DFlashConfig,
    rule: DraftLayerRule,
) -> DraftLayer[Array]:
    def weight(part: str) -> Array:
        return weights[f"{name}{part}.weight"]

    def normed(norm: str, *parts: str) -> Map[Array]:
        joint = kernels.joined([weight(part) for part in parts])
        return kernels.normed_product(weight(norm), config.norm_eps, joint, config.block_size)

    queries = kernels.repeated(
        weight("self_attn.q_norm"), config.heads, scale=config.head_dim**-0.5
    )
    keys = kernels.repeated(weight("self_attn.k_norm"), config.kv_heads, scale=1.0)
    return DraftLayer(
        rule=rule,
        queries_keys_values=normed(
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"
        ),
        head_norm=kernels.norm(kernels.joined([queries, keys]), config.norm_eps),
        output=kernels.product(weight("self_attn.o_proj"), config.block_size),
        gate_up=normed("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj"),
        down=kernels.product(weight("mlp.down_proj"), config.block_size),
    )


class ContextProjection(Generic[Array]):
    """Keys and values of context positions in all layers, by one product.

    Those of a position are a function of its vector and its place alone.
    """

    def __init__(
        self, kernels: DraftKernels[Array], weights: Mapping[str, Array], config: DFlashConfig
    ) -> None:
        def of_layers(part: str) -> list[Array]:
            return [
                weights[f"layers.{index}.self_attn.{part}.weight"]
                for index in range(config.layer_count)
            ]

        joint = kernels.joined([*of_layers("k_proj"), *of_layers("v_proj")])
        gains = [kernels.repeated(gain, config.kv_heads, scale=1.0) for gain in of_layers("k_norm")]
        self._kernels = kernels
        self._product = kernels.product(joint, config.block_size)
        self._norm = kernels.norm(kernels.joined(gains), config.norm_eps)
        self._heads = config.layer_count * config.kv_heads

    def keys_values(self, vectors: Array, turns: Turns[Array]) -> tuple[Array, Array]:
        """[layers * kv_heads, n, head_dim] both, of `vectors` [n, hidden_size]."""
        made = self._product(vectors)
        return self._kernels.turned_heads(made, self._norm, self._heads, turns)
