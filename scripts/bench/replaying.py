"""A proposer that replays a known stream and errs at a set rate.

For measuring the loop around proposers and nothing else: it has no model, so that
what it says about acceptance is what it was told.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.proposer_info import NGRAM, ProposerInfo


def guesses(
    stream: Sequence[int], probability: float, vocabulary_size: int, seed: int
) -> tuple[int, ...]:
    """One guess a position of `stream`: its token with `probability`, else another one.

    Whether a position is guessed right depends on the seed and the position only,
    so that every way of asking meets the same errors.
    """
    rng = random.Random(seed)
    return tuple(
        token if rng.random() < probability else (token + 1) % vocabulary_size for token in stream
    )


class ReplayingState(EagerDraftState):
    """One session's place in the stream."""

    def __init__(
        self,
        length: int,
        known: Sequence[int],
        draft_seconds: float,
        pause: Callable[[float], None],
    ) -> None:
        self._length = length
        self._known = known
        self._draft_seconds = draft_seconds
        self._pause = pause

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return self._length

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        self._length += len(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        _step_count: int,
        _drawing: Drawing | None = None,
    ) -> Draft:
        """The guesses behind history + `assumed`, after `draft_seconds`."""
        if self._draft_seconds:
            self._pause(self._draft_seconds)
        first = self._length + len(assumed)
        return Draft(
            tuple(self._known[first : first + block_size]), compute_seconds=self._draft_seconds
        )


class ReplayingProposer:
    """Guesses of one stream; `draft_seconds` is the time that each block pretends to take."""

    def __init__(
        self,
        model_id: str,
        known: Sequence[int],
        draft_seconds: float = 0.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model_id = model_id
        self._known = tuple(known)
        self._draft_seconds = draft_seconds
        self._pause = pause

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self._model_id

    @property
    def info(self) -> ProposerInfo:
        """What it is: like prompt lookup, it has no weights."""
        return ProposerInfo(self._model_id, NGRAM)

    @property
    def encoder(self) -> FeatureEncoder | None:
        """It needs none."""
        return None

    def open(self, prefix: Sequence[int]) -> ReplayingState:
        """State for a session whose history is `prefix`, the beginning of the stream."""
        return ReplayingState(len(prefix), self._known, self._draft_seconds, self._pause)
