"""What every proposer does, whatever it guesses with."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.device import AUTO
from kakeya_fleet.engine.contracts.draft import (
    MAX_BLOCK_SIZE,
    ConditionedDraftState,
    DraftState,
    Proposer,
)
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.proposers.loading import LOADERS, load_proposer
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.speculation.checks import check_draft
from kakeya_fleet.fleet.placement.acceptance_prior import ASSUMED_ACCEPTANCE
from kakeya_fleet.node.membership.card_wire import offer_from_wire, offer_to_wire
from kakeya_fleet.node.roles.proposer.proposer_loading import proposer_offer
from tests.support.breadth import again, all_wide_but
from tests.support.hash_verifier import HashVerifier
from tests.support.small_verifiers import DEVICES, require_device

VOCABULARY = 5
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=30)
PLAIN = "hash"
"""A plain language model, by its name."""
SIZES = st.integers(1, MAX_BLOCK_SIZE)
DRAWINGS = st.none() | st.builds(Drawing, st.floats(0.1, 2.0), st.integers(0, 2**64 - 1))
"""Of a verifier that is greedy, and of ones that draw."""
# Windows that histories outgrow.
DRAFTERS: dict[str, dict[str, object]] = {
    "dflash": {"layer_types": ["sliding_attention"] * 2, "sliding_window": 9},
    "dflash2": {"version": 2, "layer_types": ["sliding_attention"] * 2, "sliding_window": 9},
    "dflash2-cut": {
        "version": 2,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "confidence_threshold": 0.6,
    },
}
"""Drafters that are conditioned on a verifier, by name, on both back ends."""
BACKENDS = ("torch", "mlx")
CONDITIONED = [f"{drafter}@{backend}" for drafter in sorted(DRAFTERS) for backend in BACKENDS]
TRIED = ["dflash@torch", "dflash@mlx", "dflash2@torch", "dflash2@mlx", "dflash2-cut@torch"]
ON_DEVICES = [
    pytest.param(f"{drafter}@{device}", marks=pytest.mark.device)
    for drafter in sorted(DRAFTERS)
    for device in DEVICES
]
WIDTH = 32
VECTORS = np.random.default_rng(17).standard_normal((400, WIDTH), dtype=np.float32)
"""Of the positions of any history."""


@pytest.fixture(
    scope="module", params=[*sorted(LOADERS), PLAIN, *all_wide_but(TRIED, CONDITIONED), *ON_DEVICES]
)
def named(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A proposer's name and its back end's, or a device of torch's."""
    name, _, backend = str(request.param).partition("@")
    return name, backend


@pytest.fixture(scope="module")
def name(named: tuple[str, str]) -> str:
    return named[0]


@pytest.fixture(scope="module")
def proposer(
    named: tuple[str, str],
    random_checkpoint: Callable[..., Path],
    random_drafter: Callable[..., Path],
) -> Proposer:
    name, backend = named
    if name == PLAIN:
        # Few tokens, so that histories outgrow them, and no time, of which lengths are a matter.
        return AutoregressiveProposer(HashVerifier(), lambda: 0.0, most_read=40)
    if name in DRAFTERS:
        if backend == "mlx" and importlib.util.find_spec("mlx") is None:
            pytest.skip("MLX is not installed")
        device = AUTO
        if backend in DEVICES:
            require_device(backend)
            device, backend = backend, "torch"
        target = random_checkpoint("Qwen3ForCausalLM", tie_word_embeddings=False)
        folder = random_drafter(target, name, block_size=6, **DRAFTERS[name])
        return load_proposer(f"{folder}@{target}", backend=backend, device=device, dtype="float32")
    return load_proposer(name)


def vectors_since(state: DraftState) -> tuple[int, np.ndarray]:
    """Those that a conditioned state wants, by position."""
    assert isinstance(state, ConditionedDraftState)
    return state.features_end, VECTORS[state.features_end : max(0, state.length - 1)]


def drafted(state: DraftState, assumed: Sequence[int], size: int) -> tuple[int, ...]:
    while state.is_behind:
        state.read()
    if isinstance(state, ConditionedDraftState):
        state.take_features(*vectors_since(state))
    return state.propose(assumed, size, 0).token_ids


def test_it_answers_to_its_name(name: str, proposer: Proposer) -> None:
    assert proposer.model_id == name


def test_a_card_carries_it_and_the_planner_has_a_prior_for_its_kind(proposer: Proposer) -> None:
    offer = proposer_offer(proposer, time.monotonic)
    assert offer_from_wire(offer_to_wire(offer)).kind is offer.kind
    assert offer.kind in ASSUMED_ACCEPTANCE


@again(4)
@settings(deadline=None, max_examples=10)
@given(prefix=TOKENS, assumed=TOKENS, size=SIZES, drawing=DRAWINGS)
def test_a_draft_is_well_formed(
    proposer: Proposer,
    prefix: list[int],
    assumed: list[int],
    size: int,
    drawing: Drawing | None,
) -> None:
    state = proposer.open(prefix)
    if isinstance(state, ConditionedDraftState):
        state.take_features(*vectors_since(state))
    draft = state.propose(assumed, size, 0, drawing)
    check_draft(draft, size, proposer.info.vocabulary_size or VOCABULARY)
    assert draft.compute_seconds >= 0.0
    assert draft.round_trip_seconds == draft.compute_seconds
    assert min(draft.diffusion_step_count, draft.forward_pass_count) >= 0


@again(4)
@settings(deadline=None, max_examples=10)
@given(prefix=TOKENS, commits=st.lists(TOKENS, max_size=4), assumed=TOKENS, size=SIZES)
def test_only_the_history_counts(
    proposer: Proposer,
    prefix: list[int],
    commits: list[list[int]],
    assumed: list[int],
    size: int,
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


@again(4)
@settings(deadline=None, max_examples=10)
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


@pytest.mark.parametrize("named", all_wide_but(TRIED, CONDITIONED), indirect=True)
@pytest.mark.parametrize("size", [1e20, 3e38])
def test_vectors_that_overflow_give_a_draft_of_ids_and_are_gone_with_the_session(
    size: float, proposer: Proposer
) -> None:
    """Finite numbers that no honest verifier sends: what comes of them is no number any more."""
    history = [1, 2, 3, 4, 0, 1, 2, 3, 4, 1]
    expected = drafted(proposer.open(history), [], 5)
    state = proposer.open(history)
    assert isinstance(state, ConditionedDraftState)
    state.take_features(0, np.sign(VECTORS[:9]) * np.float32(size))
    check_draft(state.propose((), 5, 0), 5, proposer.info.vocabulary_size)
    assert drafted(proposer.open(history), [], 5) == expected


async def test_a_local_source_drafts_what_the_proposer_drafts(proposer: Proposer) -> None:
    history = [1, 2, 3, 4, 1, 2]
    length = 0
    source = LocalDraftSource(
        proposer, features=lambda first: (first, VECTORS[first : max(0, length - 1)])
    )
    for length in (4, 6):
        draft = await source.draft(history[:length], [3], 4)
        assert draft.token_ids == drafted(proposer.open(history[:length]), [3], 4)
    await source.close()
