"""The `dflash` proposer on torch: a strictly loaded DFlash v1 drafter (arXiv:2602.06036)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil
import torch

from engine.backends.torch_backend.dflash.checkpoint import expected_shapes, read_weights
from engine.backends.torch_backend.dflash.config import (
    ARCHITECTURE_NAME,
    DFlashConfig,
    read_config,
)
from engine.backends.torch_backend.dflash.draft_state import DFlashDraftState
from engine.backends.torch_backend.dflash.encoder import load_encoder
from engine.backends.torch_backend.dflash.model import DFlashModel
from engine.backends.torch_backend.dflash.target import read_target
from engine.backends.torch_backend.dtypes import torch_dtype
from engine.digests import tokenizer_digest, weights_digest
from engine.errors import OutOfMemory
from engine.feature_encoder import ContextEncoder
from engine.model_folder import ModelFolder
from engine.proposers.info import DFLASH, ProposerInfo


class DFlashProposer:
    """A loaded drafter. Holds no session's state. Calls come from one thread at a time."""

    def __init__(
        self,
        model: DFlashModel,
        encoder: ContextEncoder,
        info: ProposerInfo,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._encoder = encoder
        self._info = info
        self._clock = clock

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self._info.model_id

    @property
    def info(self) -> ProposerInfo:
        """What it is."""
        return self._info

    @property
    def encoder(self) -> ContextEncoder:
        """What makes its context vectors on the verifier's side."""
        return self._encoder

    @property
    def model(self) -> DFlashModel:
        """The drafter's weights."""
        return self._model

    def open(self, prefix: Sequence[int]) -> DFlashDraftState:
        """State for one session whose history is `prefix`."""
        return DFlashDraftState(self._model, prefix, self._clock)


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
) -> DFlashProposer:
    """The drafter in `folder` for the verifier in `target`, whose embedding and head it uses.

    `dtype`: `float32` or `bfloat16`, of products; all else is float32. `available_bytes`:
    memory that the weights may take; what the machine has available if None.
    Raises a `ModelUnusable`: what is wrong with config, weights or tokenizer of
    either folder, `TrainedForAnother`, `OutOfMemory`; or `BadParameters`.
    """
    number = torch_dtype(dtype)
    config = read_config(folder.path)
    _check_memory(folder, config, number, available_bytes)
    weights = read_weights(folder.path, config, number)
    ends = read_target(target, config, number)
    encoder = load_encoder(folder.path)
    info = ProposerInfo(
        model_id=folder.model_id,
        kind=DFLASH,
        architecture=ARCHITECTURE_NAME,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(target.path),
        vocabulary_size=config.vocabulary_size,
        context_length=config.context_length,
        block_size=config.block_size - 1,
        target_weights_digest=weights_digest(target.path),
        dtype=dtype,
        backend="torch",
    )
    return DFlashProposer(DFlashModel(config, weights, ends), encoder, info)


def _check_memory(
    folder: ModelFolder, config: DFlashConfig, dtype: torch.dtype, available_bytes: int | None
) -> None:
    """Raises `OutOfMemory` when the weights take more than is available, before any is read."""
    available = psutil.virtual_memory().available if available_bytes is None else available_bytes
    shapes = expected_shapes(config).values()
    ends = 2 * config.vocabulary_size * config.hidden_size
    # Of a checkpoint's linear layers the unpacked originals are there until all are packed.
    needed = (2 * sum(torch.Size(shape).numel() for shape in shapes) + ends) * dtype.itemsize
    if needed > available:
        raise OutOfMemory(
            f"{folder.path} needs {needed:,} bytes of memory and {available:,} are available;"
            " close other programs, or choose dtype bfloat16",
            needed_bytes=str(needed),
            available_bytes=str(available),
        )
