"""The `dflash` proposer, whatever back end computes it (DFlash, arXiv:2602.06036)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.draft_state import DFlashDraftState
from kakeya_fleet.engine.backends.dflash.model import DFlashModel
from kakeya_fleet.engine.backends.dflash.tensors import expected_shapes
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.contracts.proposer_info import DFLASH, ProposerInfo
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_memory import check_weights_fit


class DFlashProposer:
    """A loaded drafter. Holds no session's state. Calls come from one thread at a time."""

    def __init__(
        self,
        model: DFlashModel[Any],
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
    def model(self) -> DFlashModel[Any]:
        """The drafter's weights."""
        return self._model

    def open(self, prefix: Sequence[int]) -> DFlashDraftState:
        """State for one session whose history is `prefix`."""
        return DFlashDraftState(self._model, prefix, self._clock)


def drafter_info(
    folder: ModelFolder, target: ModelFolder, config: DFlashConfig, *, dtype: str, backend: str
) -> ProposerInfo:
    """What the drafter in `folder` for the verifier in `target` is. Raises a `ModelUnusable`."""
    return ProposerInfo(
        model_id=folder.model_id,
        kind=DFLASH,
        architecture=f"{config.architecture} v{1 if config.version_2 is None else 2}",
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(target.path),
        vocabulary_size=config.vocabulary_size,
        context_length=config.context_length,
        block_size=config.block_size - 1,
        target_weights_digest=weights_digest(target.path),
        dtype=dtype,
        backend=backend,
    )


def check_memory(
    folder: ModelFolder, config: DFlashConfig, item_bytes: int, available_bytes: int | None
) -> None:
    """Raises `OutOfMemory` when the weights take more than is available, before any is read.

    A number of the weights takes `item_bytes`. `available_bytes`: what the machine
    has available if None.
    """
    available = system_memory.available_bytes() if available_bytes is None else available_bytes
    shapes = expected_shapes(config).values()
    ends = 2 * config.vocabulary_size * config.hidden_size
    # While linear layers are joined or packed, the originals are there until all are.
    needed = (2 * sum(math.prod(shape) for shape in shapes) + ends) * item_bytes
    check_weights_fit(folder.path, needed, available, instead="dtype bfloat16")
