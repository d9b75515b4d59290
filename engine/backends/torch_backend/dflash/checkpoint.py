"""A DFlash v1 checkpoint's own tensors: all of them, exactly, or nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from engine.backends.torch_backend.dflash.config import DFlashConfig
from engine.backends.torch_backend.stored_tensors import (
    check_tensors,
    read_tensors,
    stored_tensors,
)

ENCODER = "fc.weight"
ENCODER_NORM = "hidden_norm.weight"
NORM = "norm.weight"


def expected_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor: 3 and 11 a layer, no embedding and no head."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        ENCODER: (hidden, len(config.taps) * hidden),
        ENCODER_NORM: (hidden,),
        NORM: (hidden,),
    }
    for index in range(config.layer_count):
        layer = f"layers.{index}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (config.query_size, hidden),
            f"{layer}self_attn.k_proj.weight": (config.key_size, hidden),
            f"{layer}self_attn.v_proj.weight": (config.key_size, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, config.query_size),
            f"{layer}self_attn.q_norm.weight": (head_dim,),
            f"{layer}self_attn.k_norm.weight": (head_dim,),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
        }
    return shapes


def read_weights(folder: Path, config: DFlashConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of layers and norms by their stored names: those of products in `dtype`.

    Norms are in float32; the encoder's tensors are checked and not read. Raises
    `WeightsMismatch` naming what is missing, unexpected, mis-shaped, unreadable
    or not finite, `OutOfMemory`.
    """
    shapes = expected_shapes(config)
    stored = stored_tensors(folder)
    check_tensors(folder, shapes, stored)
    own = {name: shape for name, shape in shapes.items() if name not in (ENCODER, ENCODER_NORM)}
    products = [name for name, shape in own.items() if len(shape) == 2]
    weights = read_tensors(stored, products, dtype)
    return weights | read_tensors(stored, own.keys() - set(products), torch.float32)
