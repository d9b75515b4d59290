"""Checkpoints that compressed-tensors has quantized, made by its own code of plain ones."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, PreTrainedModel


def int_weights(bits: int, group_size: int | None, *, symmetric: bool = True) -> dict[str, Any]:
    """Whole numbers of `bits`, a scale for each group; None for one an output."""
    return {
        "num_bits": bits,
        "type": "int",
        "symmetric": symmetric,
        "strategy": "channel" if group_size is None else "group",
        "group_size": group_size,
    }


FLOAT_BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 16]}
FLOAT_CHANNELS = {"num_bits": 8, "type": "float", "strategy": "channel"}
FLOAT_TENSORS = {"num_bits": 8, "type": "float", "strategy": "tensor"}
DYNAMIC_INPUTS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


def write_compressed(
    source: Path,
    folder: Path,
    groups: dict[str, dict[str, Any]],
    format_: str,
    ignore: tuple[str, ...] = ("lm_head",),
) -> dict[str, torch.Tensor]:
    """The model in `source`, its weights quantized by `groups`, into `folder`.

    What the library itself makes of it again, as numbers.
    """
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    config = QuantizationConfig(config_groups=groups, ignore=list(ignore), format=format_)
    apply_quantization_config(model, config)
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None:
            _calibrate(module, scheme.weights)
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format=format_)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    shutil.copy(source / "tokenizer.json", folder / "tokenizer.json")
    compressor.decompress_model(model)
    numbers: dict[str, torch.Tensor] = model.state_dict()
    return numbers


def decompressed(folder: Path) -> PreTrainedModel:
    """As transformers reads it, every weight made into numbers by the library."""
    asked = CompressedTensorsConfig(dequantize=True)
    with warnings.catch_warnings():
        # It says that all but this is taken from the folder's own config, as it should be.
        warnings.filterwarnings("ignore", message="You passed `quantization_config`")
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, quantization_config=asked
        )


def _calibrate(module: Any, weights: Any) -> None:
    """Scales by the least and the largest of what shares one."""
    values = module.weight.detach().float()
    rows, columns = values.shape
    dims: tuple[int, ...]
    match weights.strategy:
        case "tensor":
            parts, dims = values, (0, 1)
        case "channel":
            parts, dims = values, (1,)
        case "group":
            parts, dims = values.view(rows, -1, weights.group_size), (2,)
        case _:
            high, wide = weights.block_structure
            parts, dims = values.view(rows // high, high, columns // wide, wide), (1, 3)
    least, most = parts.amin(dims), parts.amax(dims)
    scale, zero = calculate_qparams(least, most, weights)
    module.weight_scale.data.copy_(scale.view(module.weight_scale.shape))
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data.copy_(zero.view(module.weight_zero_point.shape))
