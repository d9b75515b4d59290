from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.fleet.placement.cost_model import (
    MAX_BLOCK_SIZE,
    PairCost,
    alone_tokens_per_second,
    expected_tokens,
    step_seconds,
    widest_block,
)

FLAT = (StepCost(1, 0.010), StepCost(16, 0.010))
RISING = (StepCost(1, 0.010), StepCost(4, 0.016), StepCost(16, 0.040))

acceptances = st.floats(0.0, 1.0)
round_trips = st.floats(0.0, 1.0)


@pytest.mark.parametrize(
    ("token_count", "seconds"),
    [(0, 0.010), (1, 0.010), (2, 0.012), (4, 0.016), (10, 0.028), (16, 0.040), (32, 0.080)],
)
def test_steps_between_measured_ones_are_interpolated(token_count: int, seconds: float) -> None:
    assert step_seconds(RISING, token_count) == pytest.approx(seconds)


def test_nothing_measured_predicts_nothing() -> None:
    with pytest.raises(ValueError, match="no step"):
        step_seconds((), 1)


@given(st.floats(0.0, 0.999), st.integers(1, 15))
@settings(deadline=None)
def test_expected_tokens_are_the_sum_of_the_chances_to_get_that_far(
    acceptance: float, block_size: int
) -> None:
    by_hand = sum(acceptance**position for position in range(block_size + 1))
    assert expected_tokens(acceptance, block_size) == pytest.approx(by_hand)


def test_the_ends_of_acceptance() -> None:
    assert expected_tokens(0.0, 8) == 1.0
    assert expected_tokens(1.0, 8) == 9.0


def test_block_seconds_by_hand() -> None:
    cost = PairCost(FLAT, (StepCost(1, 0.002),), round_trip_seconds=0.004, acceptance=0.5)
    # B = 2: h = 1/8; draft = 0.004 + 2 * 0.002; hit = max(0.010, 0.008)
    assert cost.block_seconds(2) == pytest.approx(0.125 * 0.010 + 0.875 * 0.018)
    assert cost.tokens_per_second(2) == pytest.approx(1.75 / (0.125 * 0.010 + 0.875 * 0.018))


def test_a_perfect_proposer_is_bound_by_the_slower_side() -> None:
    slow = PairCost(FLAT, (StepCost(1, 0.030), StepCost(16, 0.030)), 0.010, acceptance=1.0)
    assert slow.block_seconds(4) == pytest.approx(0.040)
    fast = PairCost(FLAT, (StepCost(1, 0.001), StepCost(16, 0.001)), 0.001, acceptance=1.0)
    assert fast.block_seconds(4) == pytest.approx(0.010)


def test_a_hopeless_proposer_only_adds_its_time() -> None:
    cost = PairCost(FLAT, (StepCost(1, 0.001),), 0.001, acceptance=0.0)
    assert cost.best_block_size() == 1
    assert cost.tokens_per_second(1) == pytest.approx(1 / 0.012)


def test_the_widest_block_leaves_a_query_for_the_last_token() -> None:
    assert widest_block(FLAT) == 15
    assert widest_block((StepCost(1, 0.1), StepCost(64, 0.1))) == MAX_BLOCK_SIZE
    assert widest_block((StepCost(1, 0.1), StepCost(5, 0.1))) == 4
    assert widest_block((StepCost(1, 0.1),)) == 1


def test_good_drafts_want_long_blocks_and_bad_ones_short() -> None:
    def best(acceptance: float) -> int:
        costs = (StepCost(1, 0.0005), StepCost(16, 0.0005))
        return PairCost(RISING, costs, 0.010, acceptance).best_block_size()

    assert best(0.95) > best(0.6) > best(0.2)


@given(acceptances, round_trips, round_trips, st.integers(1, 15))
@settings(deadline=None)
def test_a_longer_way_is_never_faster(
    acceptance: float, one: float, other: float, block_size: int
) -> None:
    near, far = (
        PairCost(RISING, (StepCost(1, 0.001),), seconds, acceptance)
        for seconds in sorted((one, other))
    )
    assert far.tokens_per_second(block_size) <= near.tokens_per_second(block_size) * (1 + 1e-12)
    best_near = near.tokens_per_second(near.best_block_size())
    assert far.tokens_per_second(far.best_block_size()) <= best_near * (1 + 1e-12)


@given(acceptances, acceptances, round_trips, st.integers(1, 15))
@settings(deadline=None)
def test_better_drafts_are_never_slower(
    one: float, other: float, round_trip: float, block_size: int
) -> None:
    worse, better = (
        PairCost(RISING, (StepCost(1, 0.001),), round_trip, acceptance)
        for acceptance in sorted((one, other))
    )
    speed = better.tokens_per_second(block_size)
    assert worse.tokens_per_second(block_size) <= speed * (1 + 1e-9)


def test_alone_is_one_token_a_step() -> None:
    assert alone_tokens_per_second(RISING) == pytest.approx(100.0)
