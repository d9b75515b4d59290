"""Drafts that quote the history before a model is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.draft import (
    ConditionedDraftState,
    Draft,
    DraftState,
    EagerDraftState,
)
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.contracts.proposer_info import DFLASH, ProposerInfo
from kakeya_fleet.engine.proposers.quoting import QUOTED_FROM, QuotingProposer

MODELS_OWN = 9


class ModelState(EagerDraftState):
    """Drafts one token over and over, and remembers what it was told."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.history = list(prefix)
        self.asked = 0
        self.is_closed = False
        self.drawing: Drawing | None = None
        self.is_taken_back = False

    @property
    def length(self) -> int:
        return len(self.history)

    def commit(self, token_ids: Sequence[int]) -> None:
        self.history += token_ids

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        self.asked += 1
        self.drawing = drawing
        return Draft((MODELS_OWN,) * block_size, forward_pass_count=1)

    def take_back(self) -> None:
        self.is_taken_back = True

    def close(self) -> None:
        self.is_closed = True


class ConditionedModelState(ModelState):
    """With context vectors."""

    features_end = 0

    def take_features(self, first: int, vectors: ContextVectors) -> None:
        self.features_end = first + len(vectors)


class Model:
    """A proposer of one of these states."""

    model_id = "model"
    info = ProposerInfo("model", DFLASH)
    encoder = None

    def __init__(self, kind: type[ModelState]) -> None:
        self._kind = kind
        self.opened: list[ModelState] = []

    def open(self, prefix: Sequence[int]) -> DraftState:
        self.opened.append(self._kind(prefix))
        return self.opened[-1]


TEXT = [11, 12, 13, 14, 15, 16, 17]


@pytest.fixture
def model() -> Model:
    return Model(ModelState)


def test_what_stood_before_is_drafted_and_the_model_is_not_asked(model: Model) -> None:
    state = QuotingProposer(model).open([*TEXT, 5, *TEXT[:QUOTED_FROM]])
    draft = state.propose((), 4, 0)
    assert draft.token_ids == (14, 15, 16, 17)
    assert draft.forward_pass_count == 0
    assert model.opened[0].asked == 0


def test_of_too_few_tokens_that_stood_together_the_model_drafts(model: Model) -> None:
    state = QuotingProposer(model).open([*TEXT, 5, *TEXT[: QUOTED_FROM - 1]])
    assert state.propose((), 4, 0).token_ids == (MODELS_OWN,) * 4
    assert state.propose((), 4, 0).forward_pass_count == 1


def test_assumed_tokens_count_and_are_not_kept(model: Model) -> None:
    state = QuotingProposer(model).open([*TEXT, 5, *TEXT[: QUOTED_FROM - 1]])
    assert state.propose((13,), 2, 0).token_ids == (14, 15)
    assert state.propose((), 2, 0).token_ids == (MODELS_OWN,) * 2
    state.commit((13,))
    assert state.propose((), 2, 0).token_ids == (14, 15)


def test_both_are_told_what_was_committed(model: Model) -> None:
    state = QuotingProposer(model).open(TEXT)
    state.commit((1, 2))
    assert state.length == len(TEXT) + 2
    assert model.opened[0].history == [*TEXT, 1, 2]
    state.close()
    assert model.opened[0].is_closed


def test_context_vectors_go_to_a_model_that_wants_them() -> None:
    model = Model(ConditionedModelState)
    state = QuotingProposer(model).open(TEXT)
    assert isinstance(state, ConditionedDraftState)
    state.take_features(2, np.zeros((3, 8), np.float32))
    assert state.features_end == 5


def test_a_model_without_vectors_is_not_sent_any(model: Model) -> None:
    assert not isinstance(QuotingProposer(model).open(TEXT), ConditionedDraftState)


def test_it_is_what_the_model_is(model: Model) -> None:
    proposer = QuotingProposer(model)
    assert (proposer.model_id, proposer.info, proposer.encoder) == ("model", model.info, None)
    assert proposer.inner is model


def test_the_model_draws_as_it_is_told(model: Model) -> None:
    state = QuotingProposer(model).open(TEXT)
    drawing = Drawing(0.7, seed=3)
    state.propose((), 4, 0, drawing)
    assert model.opened[0].drawing is drawing


def test_a_draft_is_taken_back_from_the_model(model: Model) -> None:
    state = QuotingProposer(model).open(TEXT)
    state.take_back()
    assert model.opened[-1].is_taken_back
