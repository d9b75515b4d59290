"""A model that drafts, and what the text itself says before it is asked.

Where the last tokens of a history stood together before, the history most often goes on as it did
then (Saxena, "Prompt lookup decoding", 2023): a quote, a list's next line, a greedy answer that
runs in circles. That draft is longer than a model's, it takes no time, and is the surer one from
some tokens on; of fewer the model knows better.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kakeya_fleet.engine.contracts.draft import (
    ConditionedDraftState,
    Draft,
    DraftState,
    Proposer,
)
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import ContextVectors, FeatureEncoder
from kakeya_fleet.engine.contracts.proposer_info import ProposerInfo
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.proposers.ngram import INDEXED_TOKENS, NgramDraftState

QUOTED_FROM = 3
"""Tokens that must have stood together; of fewer a drafter knows better."""


class QuotingDraftState:
    """A session's state with a model, `inner`, and with the tokens that its history has."""

    def __init__(
        self, inner: DraftState, prefix: Sequence[int], clock: Callable[[], float]
    ) -> None:
        self._inner = inner
        self._quotes = NgramDraftState(prefix, clock, INDEXED_TOKENS, shortest=QUOTED_FROM)

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return self._inner.length

    @property
    def is_behind(self) -> bool:
        """Whether the model is: it reads meanwhile, and what can be quoted is drafted."""
        return self._inner.is_behind

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        self._inner.commit(token_ids)
        self._quotes.commit(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """A quote of `block_size` tokens, or else what the model drafts."""
        quoted = self._quotes.propose(assumed, block_size, step_count)
        if quoted.token_ids:
            return quoted
        return self._inner.propose(assumed, block_size, step_count, drawing)

    def take_back(self) -> None:
        """The model ends what it drafts now."""
        self._inner.take_back()

    def read(self) -> None:
        """The model reads some of the history that it is behind. Raises `DraftFailed`."""
        self._inner.read()

    def take_keys_values(self, first: int, count: int, numbers: KeysValues) -> None:
        """The model takes them. Raises as it does."""
        self._inner.take_keys_values(first, count, numbers)

    def close(self) -> None:
        """Gives back what the model holds."""
        self._inner.close()


class ConditionedQuotingDraftState(QuotingDraftState):
    """With a model that wants context vectors."""

    def __init__(
        self, inner: ConditionedDraftState, prefix: Sequence[int], clock: Callable[[], float]
    ) -> None:
        super().__init__(inner, prefix, clock)
        self._conditioned = inner

    @property
    def features_end(self) -> int:
        """The position behind the last vector known to the model."""
        return self._conditioned.features_end

    def take_features(self, first: int, vectors: ContextVectors) -> None:
        """See `ConditionedDraftState`."""
        self._conditioned.take_features(first, vectors)


class QuotingProposer:
    """`inner`, whose sessions quote first. It is what its card says: `inner`."""

    def __init__(self, inner: Proposer, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._clock = clock

    @property
    def inner(self) -> Proposer:
        """The model."""
        return self._inner

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self._inner.model_id

    @property
    def info(self) -> ProposerInfo:
        """What the model is."""
        return self._inner.info

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes the model's context vectors on the verifier's side."""
        return self._inner.encoder

    def open(self, prefix: Sequence[int]) -> DraftState:
        """State for one session whose history is `prefix`."""
        state = self._inner.open(prefix)
        if isinstance(state, ConditionedDraftState):
            return ConditionedQuotingDraftState(state, prefix, self._clock)
        return QuotingDraftState(state, prefix, self._clock)
