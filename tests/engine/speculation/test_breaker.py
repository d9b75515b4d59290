from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.speculation.breaker import Breaker

AT_ONCE = [DraftFaultKind.DEADLINE, DraftFaultKind.UNREACHABLE]
BAD_BLOCKS = [kind for kind in DraftFaultKind if kind not in AT_ONCE]


@pytest.mark.parametrize("kind", AT_ONCE)
def test_a_proposer_that_is_not_there_opens_it_at_once(kind: DraftFaultKind) -> None:
    breaker = Breaker().after_fault(kind, now=50.0)
    assert breaker.opened_by is kind
    assert not breaker.allows(50.999)
    assert breaker.allows(51.0)


@pytest.mark.parametrize("kind", BAD_BLOCKS)
def test_three_bad_blocks_in_a_row_open_it(kind: DraftFaultKind) -> None:
    breaker = Breaker()
    for _ in range(2):
        breaker = breaker.after_fault(kind, now=0.0)
        assert breaker.closed
        assert breaker.allows(0.0)
    assert breaker.after_fault(kind, now=0.0).opened_by is kind


def test_drafts_that_were_asked_for_before_it_opened_are_no_trials_however_late_they_fail() -> None:
    """With a deadline longer than the cool-down; then one trial fails, which counts."""
    breaker = Breaker().after_fault(DraftFaultKind.DEADLINE, now=5.0, asked_at=0.0)
    for late in range(1, 20):
        assert breaker.after_fault(DraftFaultKind.DEADLINE, 5.0 + late, late * 0.05) == breaker
    tried_in_vain = breaker.after_fault(DraftFaultKind.DEADLINE, now=11.0, asked_at=6.0)
    assert tried_in_vain.cool_down_seconds == 2 * breaker.cool_down_seconds


def tried(pattern: str, seconds: float = 0.01, lasting: float = 120.0) -> tuple[int, int]:
    """Faults and drafts of a proposer that is asked whenever it may be.

    It answers by the pattern, over and over: `.` a good block, `x` a bad one, `-` none in time.
    """
    kinds = {"x": DraftFaultKind.STALE, "-": DraftFaultKind.DEADLINE}
    answers, breaker, now, faults, drafts = cycle(pattern), Breaker(), 0.0, 0, 0
    while now < lasting:
        if breaker.allows(now):
            drafts += 1
            kind = kinds.get(next(answers))
            faults += kind is not None
            breaker = breaker.after_fault(kind, now) if kind else breaker.after_success()
        now += seconds
    return faults, drafts


@pytest.mark.parametrize("pattern", ["x", "-", "x.", "xx.", "-.", "x..", "-...", "x.-."])
def test_one_that_alternates_is_shut_out_like_one_that_is_always_bad(pattern: str) -> None:
    """In two minutes: a few until it opens, six while the cool-down doubles, then one in 30 s."""
    faults, _ = tried(pattern)
    assert faults <= 14


@pytest.mark.parametrize("pattern", [".", "x....", "xx" + 40 * "."])
def test_one_that_is_mostly_good_goes_on(pattern: str) -> None:
    assert tried(pattern)[1] == 12_000


def test_a_late_draft_is_forgotten_after_twelve_good_ones() -> None:
    breaker = Breaker().after_fault(DraftFaultKind.DEADLINE, 0.0)
    for _ in range(12):
        assert breaker != Breaker()
        breaker = breaker.after_success()
    assert breaker == Breaker()


def test_the_cool_down_doubles_to_thirty_seconds_and_any_fault_opens_again() -> None:
    breaker, now, waits = Breaker(), 0.0, []
    breaker = breaker.after_fault(DraftFaultKind.DEADLINE, now)
    for _ in range(7):
        waits.append(breaker.retry_at - now)
        now = breaker.retry_at
        breaker = breaker.after_fault(DraftFaultKind.STALE, now)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    for _ in range(12):
        breaker = breaker.after_success()
    assert breaker.after_fault(DraftFaultKind.DEADLINE, now).retry_at == now + 1


@given(st.lists(st.sampled_from([None, *DraftFaultKind]), max_size=30))
def test_it_is_open_only_after_a_fault_and_never_beyond_thirty_seconds(
    events: list[DraftFaultKind | None],
) -> None:
    breaker, now = Breaker(), 0.0
    for event in events:
        if not breaker.allows(now):
            now = breaker.retry_at
        opened = breaker.after_success() if event is None else breaker.after_fault(event, now)
        breaker = opened
        assert breaker.closed or event is not None
        assert breaker.retry_at <= now + 30
        if event in AT_ONCE:
            assert not breaker.allows(now)


def test_sessions_that_lose_their_drafts_at_once_are_one_fault() -> None:
    """Otherwise one hiccup under eight sessions would shut the proposer out for 30 s."""
    breaker = Breaker()
    for late in range(8):
        breaker = breaker.after_fault(DraftFaultKind.DEADLINE, now=5.0 + late / 100)
    assert breaker.allows(6.0)
    for late in range(8):
        breaker = breaker.after_fault(DraftFaultKind.DEADLINE, now=6.0 + late / 100)
    assert not breaker.allows(7.9)
    assert breaker.allows(8.0)


def test_one_draft_at_a_time_tries_a_proposer_that_was_shut_out() -> None:
    breaker = Breaker().after_fault(DraftFaultKind.DEADLINE, now=0.0)
    trying = breaker.after_asking(1.5, timeout=0.25)
    assert not trying.allows(1.6), "every session would wait for the same frozen proposer"
    # A caller that leaves tells nothing: the next one tries.
    assert trying.allows(1.75)
    assert trying.after_success().allows(1.6)
    again = trying.after_fault(DraftFaultKind.UNREACHABLE, now=1.6)
    assert (again.allows(3.5), again.allows(3.6)) == (False, True)
    assert Breaker().after_asking(0.0, timeout=9.0).allows(0.0)
