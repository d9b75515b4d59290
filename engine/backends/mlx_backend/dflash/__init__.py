"""The `dflash` proposer on MLX; see `engine.backends.dflash`."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.dflash import checkpoint
from kakeya_fleet.engine.backends.dflash.loading import load_with
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.mlx_backend.dflash.kernels import MlxDraftKernels
from kakeya_fleet.engine.backends.mlx_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.backends.narrowing import read_narrowing
from kakeya_fleet.engine.contracts.device import AUTO
from kakeya_fleet.engine.contracts.feature_encoder import (
    ContextEncoder,
    PairedProducts,
    Products,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.learned_map import LearnedMap


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
    device: str = AUTO,  # noqa: ARG001 - the only one that it can be told
) -> DFlashProposer:
    """See `backends.dflash.loading.load_with`. Raises `BadParameters` for another `dtype`."""
    return load_with(MlxDraftKernels(dtype), load_encoder, folder, target, available_bytes)


def load_encoder(folder: Path) -> ContextEncoder:
    """The context encoder of the drafter in `folder`."""
    return checkpoint.load_encoder(folder, read_tensors, mx.float32, np.array)


def load_narrowing(found: LearnedMap, inputs: int) -> Products:
    """The products of a map's first part, for vectors of `inputs` values, by NumPy."""
    return PairedProducts(read_narrowing(found, inputs, read_tensors, mx.float32, np.array))
