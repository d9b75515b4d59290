"""Loads the `dflash` proposer on torch: a strictly read DFlash v1 drafter (arXiv:2602.06036)."""

from __future__ import annotations

from kakeya_fleet.engine.backends.dflash.config import read_config
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer, check_memory, drafter_info
from kakeya_fleet.engine.backends.torch_backend.dflash.checkpoint import load_encoder, read_weights
from kakeya_fleet.engine.backends.torch_backend.dflash.model import DFlashModel
from kakeya_fleet.engine.backends.torch_backend.dflash.target import read_target
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.models.model_folder import ModelFolder


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
) -> DFlashProposer[DFlashModel]:
    """The drafter in `folder` for the verifier in `target`, whose embedding and head it uses.

    `dtype`: `float32` or `bfloat16`, of products; all else is float32. `available_bytes`:
    memory that the weights may take; what the machine has available if None.
    Raises a `ModelUnusable`: what is wrong with config, weights or tokenizer of
    either folder, `TrainedForAnother`, `OutOfMemory`; or `BadParameters`.
    """
    number = torch_dtype(dtype)
    config = read_config(folder.path)
    check_memory(folder, config, number.itemsize, available_bytes)
    weights = read_weights(folder.path, config, number)
    ends = read_target(target, config, number)
    encoder = load_encoder(folder.path)
    info = drafter_info(folder, target, config, dtype=dtype, backend="torch")
    return DFlashProposer(DFlashModel(config, weights, ends), encoder, info)
