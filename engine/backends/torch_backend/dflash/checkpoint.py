"""A DFlash v1 checkpoint read with torch; see `engine.backends.dflash.checkpoint`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash import checkpoint
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder


def read_weights(folder: Path, config: DFlashConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of layers and norms: those of products in `dtype`, norms in float32."""
    return checkpoint.read_weights(
        folder, config, read_tensors, products=dtype, norms=torch.float32
    )


def load_encoder(folder: Path) -> ContextEncoder:
    """The context encoder of the drafter in `folder`."""
    return checkpoint.load_encoder(folder, read_tensors, torch.float32, Tensor.numpy)
