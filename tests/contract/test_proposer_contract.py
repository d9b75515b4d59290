"""What every proposer does, whatever it guesses with."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE, DraftState, Proposer
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.proposers.loading import LOADERS, load_proposer
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.speculation.checks import check_draft
from kakeya_fleet.fleet.placement.acceptance_prior import ASSUMED_ACCEPTANCE
from kakeya_fleet.node.membership.card_wire import offer_from_wire, offer_to_wire
from kakeya_fleet.node.roles.proposer.proposer_loading import proposer_offer
from tests.support.hash_verifier import HashVerifier

VOCABULARY = 5
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=30)
PLAIN = "hash"
"""A plain language model, by its name."""
SIZES = st.integers(1, MAX_BLOCK_SIZE)


@pytest.fixture(scope="module", params=[*sorted(LOADERS), PLAIN])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def proposer(name: str) -> Proposer:
    if name == PLAIN:
        # Few tokens, so that histories outgrow them.
        return AutoregressiveProposer(HashVerifier(), most_read=40)
    return load_proposer(name)


def drafted(state: DraftState, assumed: Sequence[int], size: int) -> tuple[int, ...]:
    while state.is_behind:
        state.read()
    return state.propose(assumed, size, 0).token_ids


def test_it_answers_to_its_name(name: str, proposer: Proposer) -> None:
    assert proposer.model_id == name


def test_a_card_carries_it_and_the_planner_has_a_prior_for_its_kind(proposer: Proposer) -> None:
    offer = proposer_offer(proposer, time.monotonic)
    assert offer_from_wire(offer_to_wire(offer)).kind is offer.kind
    assert offer.kind in ASSUMED_ACCEPTANCE


@settings(deadline=None)
@given(prefix=TOKENS, assumed=TOKENS, size=SIZES)
def test_a_draft_is_well_formed(
    proposer: Proposer, prefix: list[int], assumed: list[int], size: int
) -> None:
    draft = proposer.open(prefix).propose(assumed, size, 0)
    check_draft(draft, size, proposer.info.vocabulary_size or VOCABULARY)
    assert draft.compute_seconds >= 0.0
    assert draft.round_trip_seconds == draft.compute_seconds
    assert min(draft.diffusion_step_count, draft.forward_pass_count) >= 0


@settings(deadline=None)
@given(prefix=TOKENS, commits=st.lists(TOKENS, max_size=4), assumed=TOKENS, size=SIZES)
def test_only_the_history_counts(
    proposer: Proposer, prefix: list[int], commits: list[list[int]], assumed: list[int], size: int
) -> None:
    """Not in how many pieces it came, nor what was proposed and assumed in between."""
    whole = [*prefix, *(token for tokens in commits for token in tokens)]
    state = proposer.open(prefix)
    for tokens in commits:
        drafted(state, assumed, size)
        state.commit(tokens)
    assert state.length == len(whole)
    assert drafted(state, [], size) == drafted(proposer.open(whole), [], size)
    assert drafted(state, assumed, size) == drafted(proposer.open(whole), assumed, size)


@settings(deadline=None)
@given(first=TOKENS, second=TOKENS, size=SIZES)
def test_sessions_know_nothing_of_each_other(
    proposer: Proposer, first: list[int], second: list[int], size: int
) -> None:
    alone = drafted(proposer.open(first), [], size)
    state, other = proposer.open(first), proposer.open(second)
    other.commit(second)
    drafted(other, first, size)
    assert state.length == len(first)
    assert drafted(state, [], size) == alone


async def test_a_local_source_drafts_what_the_proposer_drafts(proposer: Proposer) -> None:
    source = LocalDraftSource(proposer)
    history = [1, 2, 3, 4, 1, 2]
    for length in (4, 6):
        draft = await source.draft(history[:length], [3], 4)
        assert draft.token_ids == drafted(proposer.open(history[:length]), [3], 4)
    await source.close()
