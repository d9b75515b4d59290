"""How long drafts took: medians of what came, by size, and forgotten when old."""

from __future__ import annotations

from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.node.planning.draft_time_ledger import (
    DRAFTS_KEPT,
    KEPT_SECONDS,
    LEAST_DRAFTS,
    MOST_PROPOSERS,
    DraftTimeLedger,
)

KEY = ("node", "model")


def record(
    ledger: DraftTimeLedger,
    *seconds: float,
    count: int = 8,
    now: float = 0.0,
    key: tuple[str, str] = KEY,
) -> None:
    for each in seconds:
        ledger.record(key, drafted_count=count, seconds=each, now=now)


def test_a_size_counts_from_the_fourth_draft_on_and_one_outlier_not_at_all() -> None:
    ledger = DraftTimeLedger()
    record(ledger, 9.0, *[0.002] * (LEAST_DRAFTS - 2))
    assert ledger.costs(0.0) == {}
    record(ledger, 0.002)
    assert ledger.costs(0.0) == {KEY: (StepCost(8, 0.002),)}
    record(ledger, *[0.001] * LEAST_DRAFTS, count=2)
    assert ledger.costs(0.0) == {KEY: (StepCost(2, 0.001), StepCost(8, 0.002))}


def test_what_a_model_made_counts_and_else_what_was_found() -> None:
    ledger = DraftTimeLedger()
    for _ in range(2 * LEAST_DRAFTS):
        ledger.record(KEY, drafted_count=4, seconds=0.0001, now=0.0, found=True)
    assert ledger.costs(0.0) == {KEY: (StepCost(4, 0.0001),)}
    record(ledger, *[0.02] * (LEAST_DRAFTS - 1), count=4)
    ledger.record(KEY, drafted_count=4, seconds=0.0001, now=0.0, found=True)
    assert ledger.costs(0.0) == {}
    record(ledger, 0.02, count=4)
    assert ledger.costs(0.0) == {KEY: (StepCost(4, 0.02),)}


def test_the_latest_drafts_count() -> None:
    ledger = DraftTimeLedger()
    record(ledger, *[1.0] * DRAFTS_KEPT)
    record(ledger, *[0.5] * DRAFTS_KEPT)
    assert ledger.costs(0.0)[KEY] == (StepCost(8, 0.5),)


def test_empty_drafts_and_ones_of_any_size_say_nothing() -> None:
    ledger = DraftTimeLedger()
    for count in (0, -1, 65, 10**9):
        record(ledger, *[0.0] * LEAST_DRAFTS, count=count)
    assert not ledger._drafts


def test_those_that_drafted_last_are_kept_and_for_a_quarter_of_an_hour() -> None:
    ledger = DraftTimeLedger()
    for index in range(3 * MOST_PROPOSERS):
        record(ledger, *[0.1] * LEAST_DRAFTS, now=float(index), key=(f"{index}", "model"))
    last = float(3 * MOST_PROPOSERS - 1)
    assert len(ledger.costs(last)) == MOST_PROPOSERS
    assert len(ledger.costs(last + KEPT_SECONDS - 1.0)) == 1
    assert ledger.costs(last + KEPT_SECONDS) == {}
