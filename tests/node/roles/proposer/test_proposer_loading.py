"""What a card says of a proposer's drafts is what its model takes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from kakeya_fleet.engine.contracts.draft import Draft, DraftState, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.proposer_info import AUTOREGRESSIVE, ProposerInfo
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.proposers.ngram import NgramDraftState, NgramProposer
from kakeya_fleet.engine.proposers.quoting import QuotingProposer
from kakeya_fleet.node.roles.proposer.proposer_loading import measure_drafts
from tests.support.hash_verifier import HashVerifier
from tests.support.replacing import replace_method


class Clock:
    """Stands still but for what is drafted."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class SlowState(EagerDraftState):
    """Takes a second a token."""

    def __init__(self, prefix: Sequence[int], clock: Clock) -> None:
        self.length = len(prefix)
        self._clock = clock

    def commit(self, token_ids: Sequence[int]) -> None:
        self.length += len(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        self._clock.seconds += block_size
        return Draft((1,) * block_size)


class SlowProposer:
    """A model of so many tokens, or of any."""

    model_id = "slow"
    encoder = None

    def __init__(self, clock: Clock, vocabulary_size: int) -> None:
        self.info = ProposerInfo("slow", AUTOREGRESSIVE, vocabulary_size=vocabulary_size)
        self._clock = clock

    def open(self, prefix: Sequence[int]) -> DraftState:
        return SlowState(prefix, self._clock)


@pytest.mark.parametrize("vocabulary_size", [0, 96, 49_152])
def test_a_model_that_quotes_is_measured_by_what_it_makes_itself(vocabulary_size: int) -> None:
    clock = Clock()
    measured = measure_drafts(QuotingProposer(SlowProposer(clock, vocabulary_size)), clock)
    assert [(each.token_count, each.seconds) for each in measured] == [
        (1, 1.0),
        (4, 4.0),
        (8, 8.0),
        (15, 15.0),
    ]


def test_a_lookup_is_measured_by_drafts_that_it_finds() -> None:
    found: list[int] = []

    class Counted(NgramProposer):
        def open(self, prefix: Sequence[int]) -> NgramDraftState:
            state = super().open(prefix)
            propose = state.propose

            def counted(assumed: Sequence[int], block_size: int, step_count: int) -> Draft:
                draft = propose(assumed, block_size, step_count)
                found.append(len(draft.token_ids))
                return draft

            replace_method(state, "propose", counted)
            return state

    measure_drafts(Counted(), Clock())
    assert set(found) == {1, 4, 8, 15}


def test_a_plain_model_is_measured_by_whole_drafts_and_learns_nothing_of_that() -> None:
    """Nothing that it is given is right, and nobody verifies: a draft would end with a token."""
    seconds = 0.0

    class Slow(HashVerifier):
        """A second a forward."""

        def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
            nonlocal seconds
            seconds += 1
            return super().forward_batch(feeds)

    def clock() -> float:
        return seconds

    proposer = AutoregressiveProposer(cast(Verifier, Slow()), clock)
    costs = {each.token_count: each.seconds for each in measure_drafts(proposer, clock)}
    assert costs[15] - costs[1] >= 14
    # Its first session drafts as many as it is asked for.
    assert len(proposer.open([1, 2, 3]).propose((), 8, 0).token_ids) == 8
