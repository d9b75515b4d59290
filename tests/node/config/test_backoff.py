"""Pauses double up to a bound, whatever number of failures lies behind."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.config.backoff import Backoff


@pytest.mark.parametrize(
    ("failure_count", "seconds"), [(1, 0.5), (2, 1.0), (4, 4.0), (5, 5.0), (10**9, 5.0)]
)
def test_pauses_double_up_to_the_longest(failure_count: int, seconds: float) -> None:
    assert Backoff(0.5, 5.0).pause(failure_count) == seconds
