from __future__ import annotations

import pytest

from kakeya_fleet.fleet.membership.suspicion import (
    Doubt,
    Suspicion,
    least_rounds,
    rounds_to_suspicion,
    suspicion_seconds,
)


def seconds(node_count: int, confirmation_count: int = 0, stretch: float = 1.0) -> float:
    return suspicion_seconds(
        node_count=node_count,
        confirmation_count=confirmation_count,
        period_seconds=1.0,
        stretch=stretch,
    )


def test_a_pair_waits_four_periods_as_nobody_can_confirm() -> None:
    assert seconds(1) == seconds(2) == seconds(3) == 4.0


def test_the_time_grows_with_the_logarithm_of_the_fleet() -> None:
    assert seconds(10, 2) == pytest.approx(4.0)
    assert seconds(100, 2) == pytest.approx(8.0)
    assert seconds(10_000, 2) == pytest.approx(16.0)


def test_confirmations_shorten_it_from_six_times_the_least() -> None:
    assert seconds(10, 0) == pytest.approx(24.0)
    # 24 - 20 * ln 2 / ln 3
    assert seconds(10, 1) == pytest.approx(11.38, abs=0.01)
    assert seconds(10, 50) == pytest.approx(4.0)


def test_own_lag_stretches_it() -> None:
    assert seconds(2, stretch=8.0) == 32.0
    assert seconds(100, 1, stretch=2.0) == pytest.approx(2 * seconds(100, 1))


def test_the_own_time_begins_with_the_first_failed_probe_and_ends_with_an_answer() -> None:
    suspicion = Suspicion(1, 0.0, None)
    assert suspicion.failed(3.0, is_confirmed=True)
    assert (suspicion.since, suspicion.evidence) == (3.0, Doubt(3.0, 1, 0))
    assert not suspicion.failed(4.0, is_confirmed=False)
    assert not suspicion.failed(5.0, is_confirmed=True)
    assert (suspicion.since, suspicion.evidence) == (3.0, Doubt(3.0, 3, 1))
    assert suspicion.answered(6.0)
    assert (suspicion.since, suspicion.evidence) == (6.0, None)
    assert not suspicion.answered(7.0)


def test_a_round_more_for_every_tenfold_is_waited_for_before_the_fleet_is_told() -> None:
    counts = (1, 2, 10, 11, 100, 101, 1_000, 10_000)
    assert [rounds_to_suspicion(count) for count in counts] == [2, 2, 2, 3, 3, 4, 4, 5]
    assert [least_rounds(count) for count in (2, 3, 4, 10_000)] == [0, 0, 4, 4]
