"""The `dflash` proposer on torch; see `engine.backends.dflash`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash import checkpoint
from kakeya_fleet.engine.backends.dflash.loading import load_with
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.torch_backend.context_products import context_encoder
from kakeya_fleet.engine.backends.torch_backend.device import (
    device_called,
    loading_on,
    require_computed,
)
from kakeya_fleet.engine.backends.torch_backend.dflash.kernels import TorchDraftKernels
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.contracts.device import AUTO
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.models.model_folder import ModelFolder


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
    device: str = AUTO,
) -> DFlashProposer:
    """See `backends.dflash.loading.load_with`. Its encoder, the verifier's, is the host's.

    Raises `BadParameters` for another `dtype`, `DeviceUnavailable`.
    """
    computing = device_called(device)
    require_computed(computing, torch_dtype(dtype), dtype)
    if available_bytes is None:
        available_bytes = computing.available_bytes
    with loading_on(computing):
        kernels = TorchDraftKernels(dtype, computing)
        return load_with(kernels, load_encoder, folder, target, available_bytes)


def load_encoder(folder: Path) -> ContextEncoder:
    """The context encoder of the drafter in `folder`."""
    return checkpoint.load_encoder(
        folder, read_tensors, torch.float32, Tensor.numpy, context_encoder
    )
