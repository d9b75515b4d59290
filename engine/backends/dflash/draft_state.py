"""One session's state with a DFlash drafter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kakeya_fleet.engine.backends.dflash.model import DFlashModel
from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind


class DFlashDraftState(EagerDraftState):
    """The session's length and last token, and the context keys and values.

    Vectors may come before the tokens that they belong to: those of the last
    committed position and beyond wait here, so that the block itself stands at
    its positions. Owned by one thread at a time.
    """

    def __init__(
        self,
        model: DFlashModel[Any],
        prefix: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._clock = clock
        self._context = model.new_context()
        self._waiting = np.zeros((0, model.config.hidden_size), np.float32)
        self._length = 0
        self._last_token: int | None = None
        self.commit(prefix)

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return self._length

    @property
    def features_end(self) -> int:
        """The position behind the last vector known here."""
        return self._context.end + len(self._waiting)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the context's keys and values."""
        return self._context.memory_bytes

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        if token_ids:
            self._length += len(token_ids)
            self._last_token = token_ids[-1]
            self._take_waiting()

    def take_features(self, first: int, vectors: ContextVectors) -> None:
        """Context vectors [n, width] of positions `first` onwards.

        What is known already is ignored; a gap before `first` forgets what was
        before it. Raises `DraftFailed` (FEATURES), with nothing taken, for another
        shape or type and for numbers that are not finite.
        """
        self._check(first, vectors)
        known = self.features_end
        if not len(vectors) or first + len(vectors) <= known:
            return
        if first > known:
            self._context.restart(first)
            self._waiting = self._waiting[:0]
        fresh = vectors[max(0, known - first) :]
        self._waiting = np.concatenate((self._waiting, fresh))
        self._take_waiting()

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,  # noqa: ARG002 always one
        drawing: Drawing | None = None,  # noqa: ARG002 the likeliest
    ) -> Draft:
        """Drafts up to `block_size` tokens after the history, in one pass.

        Nothing behind `assumed` tokens, of which there are no vectors, nor of an
        empty history; fewer, or none, where a confidence head cuts the block.
        Raises `DraftFailed`: FEATURES when the vectors end before the last
        committed token, OUT_OF_VOCABULARY when that is no id of the target's.
        """
        began = self._clock()
        count = min(block_size, self._model.config.block_size - 1)
        if assumed or self._last_token is None or count < 1:
            return Draft(())
        if self._context.end < self._length - 1:
            raise DraftFailed(
                DraftFaultKind.FEATURES,
                f"the context vectors end at position {self._context.end}, before"
                f" {self._length - 1}",
            )
        size = self._model.config.vocabulary_size
        if not 0 <= self._last_token < size:
            raise DraftFailed(
                DraftFaultKind.OUT_OF_VOCABULARY,
                f"id {self._last_token} is outside the vocabulary of {size}",
            )
        tokens = self._model.draft(self._context, self._last_token, count)
        seconds = self._clock() - began
        return Draft(
            tuple(tokens),
            compute_seconds=seconds,
            round_trip_seconds=seconds,
            diffusion_step_count=1,
            forward_pass_count=1,
        )

    def _check(self, first: int, vectors: ContextVectors) -> None:
        width = self._model.config.hidden_size
        if first < 0 or vectors.ndim != 2 or vectors.shape[1] != width:
            raise DraftFailed(
                DraftFaultKind.FEATURES,
                f"context vectors {vectors.shape} at position {first} are not [n, {width}]",
            )
        if vectors.dtype != np.float32 or not np.isfinite(vectors).all():
            raise DraftFailed(
                DraftFaultKind.FEATURES,
                f"context vectors of {vectors.dtype} at position {first} are not finite float32",
            )

    def _take_waiting(self) -> None:
        """Makes keys and values of the vectors before the last committed token."""
        ready = min(len(self._waiting), self._length - 1 - self._context.end)
        if ready > 0:
            self._model.extend(self._context, self._waiting[:ready])
            self._waiting = self._waiting[ready:]
        most = self._model.config.context_positions
        if len(self._waiting) > most:
            # No layer would see the others once their tokens are there.
            self._context.restart(self.features_end - most)
            self._waiting = self._waiting[-most:]
