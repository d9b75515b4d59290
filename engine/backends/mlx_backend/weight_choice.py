"""Weights of a loaded model as the user chooses them: rounded, or in MLX's own quantized layers."""

from __future__ import annotations

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from kakeya_fleet.engine.backends.mlx_backend.experts import expert_layers
from kakeya_fleet.engine.models.weight_choice import (
    AUTO,
    BF16,
    BITS,
    GROUP,
    head_weights,
    require_auto,
)

ROUTERS = (".mlp.gate", ".block_sparse_moe.gate", ".router.proj")
"""Modules whose names end so decide which experts there are: of few weights, none is quantized."""
OUTPUTS = ("lm_head", "embed_tokens")
"""Modules of these names make the logits."""


def choose_weights(model: nn.Module, weights: str) -> None:
    """Changes the products' weights of `model`, in place, to one of `weight_choice.WEIGHTS`.

    Activations stay as they are: MLX multiplies them by the numbers that weights stand for.
    Raises `WeightFormatUnsupported` where groups of 32 do not divide a layer's inputs.
    """
    if weights == AUTO:
        return
    if weights == BF16:
        _round(model)
        return
    quantize(model, weights)
    mx.eval([array for _, array in tree_flatten(model.parameters())])


def quantize(model: nn.Module, weights: str) -> None:
    """Makes the products of `model` quantized layers, in place; computes nothing yet.

    `weights` is one of `BITS`. Raises as `choose_weights` does.
    """
    expert_paths = {path for path, _ in expert_layers(model)}
    routers = {path for path, _ in model.named_modules() if path.endswith(ROUTERS)}

    def is_quantizable(path: str, layer: nn.Module) -> bool:
        if path in routers:
            return False
        return path in expert_paths or isinstance(layer, nn.Linear | nn.Embedding)

    for path, layer in model.named_modules():
        if is_quantizable(path, layer) and layer.weight.shape[-1] % GROUP:
            inputs = layer.weight.shape[-1]
            require_auto(
                weights, f"layers with inputs in multiples of {GROUP}: {path} has {inputs}"
            )

    def sizes(path: str, layer: nn.Module) -> bool | dict[str, int]:
        if not is_quantizable(path, layer):
            return False
        is_output = path.rpartition(".")[2] in OUTPUTS
        bits = BITS[head_weights(weights) if is_output else weights]
        return {"bits": bits, "group_size": GROUP}

    nn.quantize(model, group_size=GROUP, bits=BITS[weights], class_predicate=sizes)


def _round(model: nn.Module) -> None:
    expert_paths = {path for path, _ in expert_layers(model)}
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Linear) or path in expert_paths:
            layer.weight = layer.weight.astype(mx.bfloat16).astype(layer.weight.dtype)
    mx.eval(model.parameters())
