"""Who gets one more of what is scarce: everybody something, and one alone nearly all."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.admission.share import Cause, kept, refusal

bounds = st.integers(1, 400)


def filled(most: int, callers: list[str]) -> Counter[str]:
    """What each holds once they have asked in that order, one place a time."""
    held: Counter[str] = Counter()
    for caller in callers:
        if refusal(most, held.total(), held[caller]) is None:
            held[caller] += 1
    return held


@given(bounds)
def test_one_caller_alone_has_four_fifths(most: int) -> None:
    held = filled(most, ["only"] * (most + 1))
    assert most - kept(most) <= held["only"] <= most - kept(most) + max(1, kept(most) // 4)


@given(st.integers(5, 400), st.integers(1, 40))
def test_a_newcomer_finds_a_place_however_greedy_one_is(most: int, rounds: int) -> None:
    greedy = ["greedy"] * (2 * most)
    held = filled(most, greedy + ["newcomer", *greedy] * rounds)
    assert held["newcomer"] >= 1


@given(bounds, st.lists(st.sampled_from("abcdef"), max_size=600))
def test_never_more_than_there_are(most: int, callers: list[str]) -> None:
    assert filled(most, callers).total() <= most


def test_why() -> None:
    assert refusal(10, 8, 8) is Cause.SHARE
    assert refusal(10, 8, 0) is None
    assert refusal(10, 10, 0) is Cause.FULL
    assert refusal(1000, 700, 0, amount=301) is Cause.FULL
    assert refusal(1000, 800, 0, amount=50) is None
    assert refusal(1000, 800, 0, amount=51) is Cause.SHARE


def test_places_too_few_to_share_go_to_whoever_comes() -> None:
    assert filled(4, ["a"] * 5) == {"a": 4}
