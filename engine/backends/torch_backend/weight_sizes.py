"""Bytes that a model's weights take once they are loaded, from their shapes alone."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import compilable, sizes_of
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import fits_groups
from kakeya_fleet.engine.backends.torch_backend.plain_families import LibraryLayer
from kakeya_fleet.engine.backends.torch_backend.routers import is_router
from kakeya_fleet.engine.contracts.positions import round_up
from kakeya_fleet.engine.models.weight_choice import (
    BF16,
    BITS,
    GROUP,
    head_weights,
    require_auto,
    whole_bytes,
)

WIDE_BYTES = torch.float32.itemsize


def loaded_bytes(model: PreTrainedModel, weights: str, dtype: torch.dtype, *, is_tied: bool) -> int:
    """Bytes of the weights of `model` at most, computed in `dtype`, products' as `weights`.

    `model` is the library's, on any device. Of a plain family they are those of the compiled
    forward, of others those of torch's operators. Raises `WeightFormatUnsupported` where groups
    of 32 do not divide a product's inputs.
    """
    if weights in BITS:
        _check_groups(model, weights)
    if compilable(model):
        return _compiled_bytes(model, weights, dtype, is_tied=is_tied)
    return _laid_out_bytes(model, weights)


def _check_groups(model: PreTrainedModel, weights: str) -> None:
    for name, module in model.named_modules():
        if type(module) is nn.Linear and not is_router(name) and not fits_groups(module):
            require_auto(
                weights,
                f"layers with inputs in multiples of {GROUP}: {name} has {module.in_features}",
            )


def _compiled_bytes(
    model: PreTrainedModel, weights: str, dtype: torch.dtype, *, is_tied: bool
) -> int:
    """As `CompiledDecoder` keeps them: panels, and all else but the embedding in float32."""
    sizes = sizes_of(model)
    embedding: Tensor = model.model.embed_tokens.weight
    total = _panel_bytes([model.lm_head], head_weights(weights), dtype)
    total += 0 if is_tied else embedding.numel() * dtype.itemsize
    for each in model.model.layers:
        layer = cast(LibraryLayer, each)
        attention, mlp = layer.self_attn, layer.mlp
        for linears in (
            [attention.q_proj, attention.k_proj, attention.v_proj],
            [attention.o_proj],
            [mlp.gate_proj, mlp.up_proj],
            [mlp.down_proj],
        ):
            total += _panel_bytes(linears, weights, dtype)
        norms = [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]
        total += sum(norm.numel() for norm in norms) * WIDE_BYTES
        if hasattr(attention, "q_norm"):
            total += 2 * sizes.head_size * WIDE_BYTES
    return total + sizes.hidden * WIDE_BYTES


def _panel_bytes(linears: list[nn.Linear], weights: str, dtype: torch.dtype) -> int:
    """Of layers of one input as one product, padded to whole panels."""
    inputs = linears[0].in_features
    outputs = round_up(sum(linear.out_features for linear in linears), PANEL)
    bias = outputs * WIDE_BYTES if linears[0].bias is not None else 0
    if weights in BITS:
        return whole_bytes(weights, outputs, inputs) + bias
    item = torch.bfloat16.itemsize if weights == BF16 else dtype.itemsize
    return outputs * inputs * item + bias


def _laid_out_bytes(model: PreTrainedModel, weights: str) -> int:
    """Those of torch's operators: a head of the embedding's weights is a copy of them."""
    total: int = sum(tensor.nbytes for tensor in model.state_dict().values())
    if weights not in BITS:
        return total
    for name, module in model.named_modules():
        if type(module) is nn.Linear and not is_router(name):
            own = head_weights(weights) if name == "lm_head" else weights
            total -= sum(tensor.nbytes for tensor in module.state_dict().values())
            total += _panel_bytes([module], own, module.weight.dtype)
    return total
