"""The products and norms of a drafter, joined into as few as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, DraftLayerRule
from kakeya_fleet.engine.backends.dflash.convolution import Entry, convolved_entry, plain_entry
from kakeya_fleet.engine.backends.dflash.kernels import Array, DraftKernels, Map, Turns
from kakeya_fleet.engine.backends.dflash.tensors import ATTENTION_CONVOLUTION, MLP_CONVOLUTION


@dataclass(frozen=True, slots=True)
class DraftLayer(Generic[Array]):
    """One layer. `head_norm` is of queries and keys [n, heads + kv_heads, head_dim].

    The scale of scores, head_dim ** -0.5, is part of the queries' gain.
    `queries_keys_values` and `gate_up` norm their input first, and say what finishes what
    `output` and `down` give.
    """

    rule: DraftLayerRule
    queries_keys_values: Entry[Array]
    head_norm: Map[Array]
    output: Map[Array]
    gate_up: Entry[Array]
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

    def entry(norm: str, convolution: str, *parts: str) -> Entry[Array]:
        joint = kernels.joined([weight(part) for part in parts])
        gain, eps, rows = weight(norm), config.norm_eps, config.block_size
        if config.version_2 is None:
            return plain_entry(kernels.normed_product(gain, eps, joint, rows))
        return convolved_entry(
            kernels,
            weights,
            name + convolution,
            rows,
            norm=kernels.norm(gain, eps),
            product=kernels.product(joint, rows),
        )

    queries = kernels.repeated(
        weight("self_attn.q_norm"), config.heads, scale=config.head_dim**-0.5
    )
    keys = kernels.repeated(weight("self_attn.k_norm"), config.kv_heads, scale=1.0)
    return DraftLayer(
        rule=rule,
        queries_keys_values=entry(
            "input_layernorm",
            ATTENTION_CONVOLUTION,
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
        ),
        head_norm=kernels.norm(kernels.joined([queries, keys]), config.norm_eps),
        output=kernels.product(weight("self_attn.o_proj"), config.block_size),
        gate_up=entry("post_attention_layernorm", MLP_CONVOLUTION, "mlp.gate_proj", "mlp.up_proj"),
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
