"""Acceptance by pair: weighted towards the latest, forgotten when old."""

from __future__ import annotations

import pytest

from node.planning.acceptance_ledger import KEPT_SECONDS, AcceptanceLedger

PAIR = ("verifier", "proposer")


def record(ledger, drafted, tried, accepted, now=0.0, pair=PAIR):
    ledger.record(pair, drafted_count=drafted, tried_count=tried, accepted_count=accepted, now=now)


def test_the_rate_is_of_tried_tokens_not_of_drafted_ones():
    ledger = AcceptanceLedger()
    # Ten blocks of 8: 3 accepted, one mismatch, four never looked at.
    record(ledger, drafted=80, tried=40, accepted=30)
    measured = ledger.rates(0.0)[PAIR]
    assert measured.acceptance_rate == pytest.approx(0.75)
    assert measured.drafted_count == 80


def test_later_generations_weigh_more():
    ledger = AcceptanceLedger(half_life_tokens=100.0)
    record(ledger, 100, 100, 100)
    record(ledger, 100, 100, 0)
    # The first one's weight has halved: 50 of 150.
    assert ledger.rates(0.0)[PAIR].acceptance_rate == pytest.approx(1 / 3)


def test_pairs_are_apart_and_nothing_tried_says_nothing():
    ledger = AcceptanceLedger()
    record(ledger, 0, 0, 0)
    assert ledger.rates(0.0) == {}
    record(ledger, 10, 10, 10, pair=("verifier", "other"))
    assert set(ledger.rates(0.0)) == {("verifier", "other")}


def test_a_pair_that_nobody_tries_is_unknown_again():
    ledger = AcceptanceLedger()
    record(ledger, 10, 10, 0, now=5.0)
    assert PAIR in ledger.rates(5.0 + KEPT_SECONDS - 1)
    assert ledger.rates(5.0 + KEPT_SECONDS) == {}
