"""Loads the `dflash` proposer with a back end's kernels: a strictly read DFlash drafter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kakeya_fleet.engine.backends.dflash.config import read_config
from kakeya_fleet.engine.backends.dflash.kernels import Array, DraftKernels
from kakeya_fleet.engine.backends.dflash.model import DFlashModel
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer, check_memory, drafter_info
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.models.model_folder import ModelFolder


def load_with(
    kernels: DraftKernels[Array],
    load_encoder: Callable[[Path], ContextEncoder],
    folder: ModelFolder,
    target: ModelFolder,
    available_bytes: int | None,
) -> DFlashProposer:
    """The drafter in `folder` for the verifier in `target`, whose embedding and head it uses.

    `available_bytes`: memory that the weights may take; what the machine has available
    if None. Raises a `ModelUnusable`: what is wrong with config, weights or tokenizer of
    either folder, `TrainedForAnother`, `OutOfMemory`.
    """
    config = read_config(folder.path)
    check_memory(folder, config, kernels.item_bytes, available_bytes)
    weights = kernels.read_weights(folder.path, config)
    model = DFlashModel(kernels, config, weights, kernels.read_ends(target, config))
    info = drafter_info(folder, target, config, dtype=kernels.dtype, backend=kernels.backend)
    return DFlashProposer(model, load_encoder(folder.path), info)
