"""A DFlash v1 checkpoint's own tensors: all of them, exactly, or nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.tensors import expected_shapes, own_tensors
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    check_tensors,
    read_tensors,
    stored_tensors,
)


def read_weights(folder: Path, config: DFlashConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of layers and norms by their stored names: those of products in `dtype`.

    Norms are in float32; the encoder's tensors are checked and not read. Raises
    `WeightsMismatch` naming what is missing, unexpected, mis-shaped, unreadable
    or not finite, `OutOfMemory`.
    """
    stored = stored_tensors(folder)
    check_tensors(folder, expected_shapes(config), stored)
    own = own_tensors(config)
    products = [name for name, shape in own.items() if len(shape) == 2]
    weights = read_tensors(stored, products, dtype)
    return weights | read_tensors(stored, own.keys() - set(products), torch.float32)
