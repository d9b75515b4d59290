"""Sessions beside each other draft while that pays for all of them together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kakeya_fleet.engine.speculation.company import (
    CROWD_SECONDS,
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    LOST_SECONDS,
    TRIAL_SHARE,
    Company,
)

BLOCK = 16


class Served:
    """So many sessions at once, whose tokens a second are given by whether they rest.

    For `opening` seconds after they rested no draft comes, and they make what they do at rest.
    """

    def __init__(self, count: int, rates: Mapping[bool, float], opening: float = 0.0) -> None:
        self.now = 0.0
        self.rates = dict(rates)
        self.company = Company(lambda: self.now)
        self.rested = {True: 0.0, False: 0.0}
        self.token_count = 0
        self._opening = opening
        self._opened_at = 0.0
        for _ in range(count):
            self.company.enter(drafts=True)

    def run(self, seconds: float) -> float:
        """The share of the time for which they rested."""
        self.rested = {True: 0.0, False: 0.0}
        self.token_count = 0
        end = self.now + seconds
        while self.now < end:
            rests = self.company.rests
            if rests:
                self._opened_at = self.now + self._opening
            drafted = not rests and self.now >= self._opened_at
            tokens = BLOCK if drafted else 1
            taken = tokens / self.rates[not drafted]
            self.now += taken
            self.rested[rests] += taken
            self.token_count += tokens
            self.company.committed(tokens)
        return self.rested[True] / sum(self.rested.values())


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 10, 11, 13, 16])
def test_the_faster_way_is_found_and_the_other_asked_about_ever_less(count: int) -> None:
    for rests, rates in ((True, {True: 500.0, False: 250.0}), (False, {True: 200.0, False: 400.0})):
        served = Served(count, rates)
        share = served.run(20.0)
        assert (share if rests else 1 - share) > 0.7
        later = served.run(600.0)
        assert (later if rests else 1 - later) > 0.97


def test_a_crowd_that_changes_before_its_trial_tells_anything_pays_for_it() -> None:
    """Drafts are not begun anew each time that some come or leave."""
    served = Served(4, {True: 500.0, False: 100.0})
    drafting = 0.0
    for _ in range(300):
        for change in (served.company.enter, served.company.leave):
            for _ in range(4):
                change(drafts=True)
            served.run(0.35)
            drafting += served.rested[False]
    assert served.now > 200.0
    assert drafting < 0.02 * served.now


def more(served: Served, count: int, rates: Mapping[bool, float]) -> None:
    """So many come, and all together make as much."""
    for _ in range(count):
        served.company.enter(drafts=True)
    served.rates = dict(rates)


SAVED_IN = LOST_SECONDS / TRIAL_SHARE
"""Seconds."""


@pytest.mark.parametrize(
    ("few", "many", "waits"),
    [
        ({True: 250.0, False: 150.0}, {True: 500.0, False: 900.0}, True),
        ({True: 250.0, False: 400.0}, {True: 500.0, False: 900.0}, True),
        ({True: 250.0, False: 600.0}, {True: 500.0, False: 900.0}, False),
    ],
    ids=["fewer rest", "fewer make less with drafts", "fewer make more with drafts"],
)
def test_a_larger_crowd_saves_up_for_a_trial_that_is_likely_to_be_lost(
    few: dict[bool, float], many: dict[bool, float], waits: bool
) -> None:
    served = Served(4, few)
    served.run(5.0)
    more(served, 12, many)
    share = served.run(SAVED_IN / 2)
    assert share > 0.99 if waits else share < 0.2
    # That of fewer is paid for first.
    served.run(2.5 * SAVED_IN)
    assert served.run(SAVED_IN) < 0.1


def test_only_while_several_answer_is_anything_saved() -> None:
    served = Served(4, {True: 250.0, False: 150.0})
    served.run(5.0)
    more(served, 12, {True: 500.0, False: 900.0})
    for _ in range(16):
        served.company.leave(drafts=True)
    served.now += 3600.0
    more(served, 16, served.rates)
    assert served.run(SAVED_IN / 2) > 0.99


def test_one_trial_at_most_is_saved_up_for() -> None:
    served = Served(4, {True: 250.0, False: 300.0})
    served.run(10 * SAVED_IN)
    for size, count in ((8, 4), (16, 8)):
        more(served, count, {True: 100.0 * size, False: 50.0 * size})
        served.run(5.0)
        assert served.company._levels[size].was_begun is (size == 8)


@pytest.mark.parametrize("count", [2, 4, 16])
def test_tokens_that_are_told_together_count_for_the_time_in_which_they_were_decided(
    count: int,
) -> None:
    """Of sessions that began together all are told at once of what came while nobody measured."""
    now = 0.0
    company = Company(lambda: now)
    for _ in range(count):
        company.enter(drafts=True)
    together, second = 20, 1.0 / 100.0
    while count not in company._levels or not company._levels[count].rate(rests=True):
        now += together * second
        for _ in range(count):
            for place in range(together):
                age = (together - 1 - place) * second
                company.committed(1, age)
    assert company._levels[count].rate(rests=True) <= 1.02 * count / second


@pytest.mark.parametrize("rates", [{True: 100.0, False: 250.0}, {True: 500.0, False: 900.0}])
def test_what_changes_is_found_in_time(rates: dict[bool, float]) -> None:
    """Of the way that is kept, and of the other one."""
    served = Served(4, {True: 500.0, False: 250.0})
    served.run(30.0)
    served.rates = rates
    served.run(2 * LONGEST_WAIT_SECONDS)
    assert served.run(30.0) < 0.2


def test_ways_that_are_equally_fast_leave_the_drafters_in_peace() -> None:
    served = Served(4, {True: 250.0, False: 250.0})
    served.run(20.0)
    assert served.run(60.0) > 0.9


@pytest.mark.parametrize("rates", [{True: 500.0, False: 100.0}, {True: 300.0, False: 600.0}])
@pytest.mark.parametrize("count", [2, 16])
def test_what_trials_cost_is_little_from_the_first_minute_on(
    count: int, rates: dict[bool, float]
) -> None:
    served = Served(count, rates)
    served.run(60.0)
    assert served.token_count > 0.97 * 60.0 * max(rates.values())
    served.run(600.0)
    assert served.token_count > 0.99 * 600.0 * max(rates.values())


def test_drafts_that_take_long_to_come_are_judged_once_they_have() -> None:
    """Streams that open and prompts that are read are of a trial, not of what drafts win."""
    served = Served(8, {True: 300.0, False: 600.0}, opening=0.5)
    served.run(20.0)
    assert served.run(60.0) < 0.1


def test_one_that_is_alone_between_two_answers_begins_nothing_anew() -> None:
    served = Served(2, {True: 200.0, False: 400.0})
    for _ in range(40):
        served.run(0.1)
        served.company.leave(drafts=True)
        served.company.committed(1)
        assert not served.company.rests
        # As long as it takes: what one makes alone says nothing of two.
        served.now += 0.5
        served.company.enter(drafts=True)
    assert served.run(0.1) == 0.0


def test_a_crowd_that_was_better_off_at_rest_is_thought_to_come_again() -> None:
    served = Served(4, {True: 500.0, False: 250.0})
    company = served.company
    assert not company.receives_resting
    served.run(30.0)
    assert company.receives_resting
    for _ in range(4):
        company.leave(drafts=True)
    served.now += CROWD_SECONDS / 2
    assert company.receives_resting
    served.now += CROWD_SECONDS
    assert not company.receives_resting
    drafting = Served(4, {True: 250.0, False: 500.0})
    drafting.run(30.0)
    assert not drafting.company.receives_resting


def test_one_alone_and_ones_without_drafts_are_asked_nothing() -> None:
    served = Served(1, {True: 500.0, False: 250.0})
    assert served.run(60.0) == 0
    company = Company(lambda: served.now)
    for _ in range(4):
        company.enter(drafts=False)
        company.committed(1000)
    assert not company.rests


def test_more_than_a_number_that_rests_rest_and_one_that_is_left_goes_on() -> None:
    served = Served(4, {True: 500.0, False: 250.0})
    served.run(30.0)
    for _ in range(4):
        served.company.enter(drafts=True)
    # Nor do they try before those few would again.
    assert served.run(FIRST_WAIT_SECONDS) == 1.0
    for _ in range(7):
        served.company.leave(drafts=True)
    assert not served.company.rests


def test_fewer_than_a_number_that_drafts_draft_from_the_start() -> None:
    served = Served(8, {True: 250.0, False: 500.0})
    served.run(30.0)
    for _ in range(5):
        served.company.leave(drafts=True)
    served.company.committed(1)
    assert not served.company.rests
