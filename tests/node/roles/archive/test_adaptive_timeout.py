"""How soon an archive that falls silent is found out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.roles.archive.adaptive_timeout import (
    LEAST_ANSWERS,
    LEAST_SECONDS,
    AdaptiveTimeout,
)

MOST_SECONDS = 6.0


def after(*seconds: float) -> float:
    patience = AdaptiveTimeout(MOST_SECONDS)
    for each in seconds:
        patience.observe(each)
    return patience.seconds


def test_it_is_the_most_until_it_is_measured() -> None:
    assert after() == MOST_SECONDS
    assert after(*[0.001] * (LEAST_ANSWERS - 1)) == MOST_SECONDS
    assert after(*[0.001] * LEAST_ANSWERS) == LEAST_SECONDS


def test_slow_archives_are_given_more_time() -> None:
    assert after(*[0.05] * 200) > 15 * 0.05
    assert after(*[3.0] * 200) == MOST_SECONDS
    # It is felt at once when answers become slow, and forgotten only slowly.
    assert after(*[0.001] * 200, *[0.2] * 4) > 10 * 0.2 * 0.5
    assert after(*[0.2] * 200, *[0.001] * 10) > 2 * LEAST_SECONDS


@given(seconds=st.lists(st.floats(0.0, 100.0), max_size=100))
def test_it_stays_between_its_bounds(seconds: list[float]) -> None:
    assert LEAST_SECONDS <= after(*seconds) <= MOST_SECONDS
