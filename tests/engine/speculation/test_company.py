"""Sessions beside each other draft while that pays for all of them together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kakeya_fleet.engine.speculation.company import LONGEST_WAIT_SECONDS, Company

BLOCK = 16


class Served:
    """So many sessions at once, whose tokens a second are given by whether they rest."""

    def __init__(self, count: int, rates: Mapping[bool, float]) -> None:
        self.now = 0.0
        self.rates = dict(rates)
        self.company = Company(lambda: self.now)
        self.rested = {True: 0.0, False: 0.0}
        for _ in range(count):
            self.company.enter(drafts=True)

    def run(self, seconds: float) -> float:
        """The share of the time for which they rested."""
        self.rested = {True: 0.0, False: 0.0}
        end = self.now + seconds
        while self.now < end:
            rests = self.company.rests
            tokens = 1 if rests else BLOCK
            taken = tokens / self.rates[rests]
            self.now += taken
            self.rested[rests] += taken
            self.company.committed(tokens, drafted=not rests)
        return self.rested[True] / sum(self.rested.values())


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_the_faster_way_is_found_and_the_other_asked_about_ever_less(count: int) -> None:
    for rests, rates in ((True, {True: 500.0, False: 250.0}), (False, {True: 200.0, False: 400.0})):
        served = Served(count, rates)
        share = served.run(20.0)
        assert (share if rests else 1 - share) > 0.7
        later = served.run(600.0)
        assert (later if rests else 1 - later) > 0.97


@pytest.mark.parametrize("rates", [{True: 100.0, False: 250.0}, {True: 500.0, False: 900.0}])
def test_what_changes_is_found_in_time(rates: dict[bool, float]) -> None:
    """Of the way that is kept, and of the other one."""
    served = Served(4, {True: 500.0, False: 250.0})
    served.run(30.0)
    served.rates = rates
    served.run(2 * LONGEST_WAIT_SECONDS)
    assert served.run(30.0) < 0.2


def test_ways_that_are_equally_fast_are_left_to_each_session() -> None:
    served = Served(4, {True: 250.0, False: 250.0})
    served.run(20.0)
    assert served.run(60.0) < 0.2


def test_one_alone_and_ones_without_drafts_are_asked_nothing() -> None:
    served = Served(1, {True: 500.0, False: 250.0})
    assert served.run(60.0) == 0
    company = Company(lambda: served.now)
    for _ in range(4):
        company.enter(drafts=False)
        company.committed(1000, drafted=False)
    assert not company.rests


def test_more_than_a_number_that_rests_begin_so_and_one_that_is_left_goes_on() -> None:
    served = Served(4, {True: 500.0, False: 250.0})
    served.run(30.0)
    for _ in range(4):
        served.company.enter(drafts=True)
    served.company.committed(1, drafted=False)
    assert served.company.rests
    for _ in range(7):
        served.company.leave(drafts=True)
    assert not served.company.rests
