"""Acceptance by pair: over sessions, each of which counts once, and forgotten when old."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.planning.acceptance_ledger import (
    KEPT_SECONDS,
    RECENT_SESSIONS,
    AcceptanceLedger,
    Pair,
)

PAIR = ("verifier", "proposer")


def record(
    ledger: AcceptanceLedger,
    drafted: int,
    tried: int,
    accepted: int,
    now: float = 0.0,
    pair: Pair = PAIR,
    session: str = "s",
) -> None:
    ledger.record(
        pair, session, drafted_count=drafted, tried_count=tried, accepted_count=accepted, now=now
    )


def test_the_rate_is_of_tried_tokens_not_of_drafted_ones() -> None:
    ledger = AcceptanceLedger()
    # Ten blocks of 8: 3 accepted, one mismatch, four never looked at.
    record(ledger, drafted=80, tried=40, accepted=30)
    measured = ledger.rates(0.0)[PAIR]
    assert measured.acceptance_rate == pytest.approx(0.75)
    assert measured.drafted_count == 80


def test_later_generations_of_a_session_weigh_more() -> None:
    ledger = AcceptanceLedger(half_life_tokens=100.0)
    record(ledger, 100, 100, 100)
    record(ledger, 100, 100, 0)
    # The first one's weight has halved: 50 of 150.
    assert ledger.rates(0.0)[PAIR].acceptance_rate == pytest.approx(1 / 3)


def test_a_session_with_many_tokens_weighs_no_more_than_one_with_few() -> None:
    ledger = AcceptanceLedger()
    record(ledger, 1500, 1500, 1500, session="long")
    for name in ("a", "b", "c"):
        record(ledger, 100, 100, 20, session=name)
    measured = ledger.rates(0.0)[PAIR]
    assert measured.acceptance_rate == pytest.approx((1.0 + 3 * 0.2) / 4)
    assert (measured.low, measured.high) == pytest.approx((0.2, 1.0))
    assert measured.session_count == pytest.approx(4.0)


def test_the_oldest_sessions_make_room_for_the_latest() -> None:
    ledger = AcceptanceLedger()
    for ordinal in range(2 * RECENT_SESSIONS):
        record(ledger, 64, 64, 64 * (ordinal >= RECENT_SESSIONS), session=str(ordinal))
    measured = ledger.rates(0.0)[PAIR]
    assert (measured.acceptance_rate, measured.session_count) == (1.0, RECENT_SESSIONS)


def test_pairs_are_apart_and_nothing_tried_says_nothing() -> None:
    ledger = AcceptanceLedger()
    record(ledger, 0, 0, 0)
    assert ledger.rates(0.0) == {}
    record(ledger, 10, 10, 10, pair=("verifier", "other"))
    assert set(ledger.rates(0.0)) == {("verifier", "other")}


def test_a_pair_that_nobody_tries_is_unknown_again() -> None:
    ledger = AcceptanceLedger()
    record(ledger, 10, 10, 0, now=5.0)
    assert PAIR in ledger.rates(5.0 + KEPT_SECONDS - 1)
    assert ledger.rates(5.0 + KEPT_SECONDS) == {}
