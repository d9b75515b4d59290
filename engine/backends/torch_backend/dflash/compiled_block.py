"""A drafter's layers as one call of its compiled library, their weights in eight bits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash import convolution
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, DraftLayerRule
from kakeya_fleet.engine.backends.dflash.kernels import DraftContext, Turns
from kakeya_fleet.engine.backends.dflash.tensors import (
    ATTENTION_CONVOLUTION,
    MLP_CONVOLUTION,
    NORM,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.draft_structs import (
    DraftBlock,
    Drafter,
    DraftLayer,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Part, Product
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import Matrix
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import Workers
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    whole_panels,
)
from kakeya_fleet.engine.backends.torch_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.models.weight_choice import GROUP

BITS = 8
LANES = 16
MOST_HEAD = 512


def compiles(config: DFlashConfig) -> bool:
    """Whether the library computes a drafter of these sizes."""
    sizes = (config.hidden_size, config.intermediate_size, config.head_dim)
    if any(size % GROUP for size in sizes) or config.head_dim > MOST_HEAD:
        return False
    return config.version_2 is None or config.version_2.convolution.group_size % LANES == 0


class CompiledBlock:
    """A `Block` of `engine.backends.dflash.kernels`. One call at a time."""

    def __init__(
        self, library: Library, weights: Mapping[str, Tensor], config: DFlashConfig
    ) -> None:
        """`weights` by their stored names, of a drafter that `compiles`."""
        self._functions = library.functions
        self._workers = Workers(library)
        self._config = config
        # The structs below point into these.
        self._kept: list[Tensor | WholePanels] = []
        layers = [
            self._layer(weights, f"layers.{index}.", config, rule)
            for index, rule in enumerate(config.rules)
        ]
        version_2 = config.version_2
        self._drafter = Drafter(
            layers=config.layer_count,
            hidden=config.hidden_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_size=config.head_dim,
            inner=config.intermediate_size,
            taps=0 if version_2 is None else version_2.convolution.taps,
            group_size=config.hidden_size
            if version_2 is None
            else version_2.convolution.group_size,
            epsilon=config.norm_eps,
            layer=(DraftLayer * config.layer_count)(*layers),
            last_norm=self._numbers(weights[NORM]),
        )

    def new_context(self) -> ContextCache:
        """Empty, for numbers of half the bytes: what the library reads."""
        config = self._config
        shape = (config.layer_count, config.kv_heads, config.head_dim)
        return ContextCache(
            shape, config.context_positions, config.block_size, dtype=torch.bfloat16
        )

    def __call__(
        self, context: DraftContext[Tensor], hidden: Tensor, rows: int, turns: Turns[Tensor]
    ) -> Tensor:
        """See `Block`. `context` is one of `new_context`; `hidden` is written over."""
        cache = cast(ContextCache, context)
        cache.make_room(rows)
        cosines, sines = turns
        block = DraftBlock(
            rows=rows,
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            slots=cache.slots.data_ptr(),
            slot_count=cache.slots.shape[3],
            first=cache.slot_of_end - (cache.end - cache.first),
            begin=cache.slot_of_end,
            hidden=hidden.data_ptr(),
        )
        self._functions.kakeya_draft(
            self._workers,
            ctypes.byref(self._drafter),
            ctypes.byref(block),
            torch.get_num_threads(),
        )
        return hidden

    def _layer(
        self, weights: Mapping[str, Tensor], name: str, config: DFlashConfig, rule: DraftLayerRule
    ) -> DraftLayer:
        def weight(part: str) -> Tensor:
            return weights[f"{name}{part}.weight"]

        def matrix(*parts: str, gated: bool = False) -> Matrix:
            return self._matrix([weight(part) for part in parts], gated=gated)

        scaled = weight("self_attn.q_norm").to(torch.float32) * config.head_dim**-0.5
        head_norm = torch.cat(
            (
                scaled.expand(config.heads, -1),
                weight("self_attn.k_norm").to(torch.float32).expand(config.kv_heads, -1),
            )
        )
        layer = DraftLayer(
            joint=matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output=matrix("self_attn.o_proj"),
            gate_up=matrix("mlp.gate_proj", "mlp.up_proj", gated=True),
            down=matrix("mlp.down_proj"),
            input_norm=self._numbers(weight("input_layernorm")),
            middle_norm=self._numbers(weight("post_attention_layernorm")),
            head_norm=self._numbers(head_norm),
            is_causal=rule.causal,
            window=rule.window or 0,
        )
        if config.version_2 is not None:
            attention, mlp = name + ATTENTION_CONVOLUTION, name + MLP_CONVOLUTION
            layer.attention_deltas = self._matrix([weights[attention + convolution.PROJECTION]])
            layer.attention_base = self._numbers(weights[attention + convolution.BASE])
            layer.mlp_deltas = self._matrix([weights[mlp + convolution.PROJECTION]])
            layer.mlp_base = self._numbers(weights[mlp + convolution.BASE])
        return layer

    def _matrix(self, weights: list[Tensor], *, gated: bool = False) -> Matrix:
        panels = whole_panels(Product([_part(weight) for weight in weights], gated), BITS)
        self._kept.append(panels)
        return panels.matrix

    def _numbers(self, tensor: Tensor) -> int:
        numbers = tensor.to(torch.float32).contiguous()
        self._kept.append(numbers)
        return numbers.data_ptr()


def _part(weight: Tensor) -> Part:
    outputs, inputs = weight.shape
    return Part(outputs, inputs, has_bias=False, read=lambda: (weight, None))
