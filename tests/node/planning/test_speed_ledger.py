"""Seconds a token from block to block, with each proposer and alone."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.generation_report import BlockTiming
from kakeya_fleet.node.planning.speed_ledger import (
    KEPT_SECONDS,
    LEAST_TOKENS,
    MOST_KEPT,
    SpeedLedger,
)

FAST, SLOW = ("node", "fast"), ("node", "slow")


class Stream:
    """Blocks of one session, one behind the other."""

    def __init__(self, ledger: SpeedLedger, session: str = "s", verifier: str = "v") -> None:
        self._ledger = ledger
        self._session, self._verifier = session, verifier
        self._index, self.seconds = 0, 0.0

    def say(
        self, proposer: ProposerKey | None, tokens: int, seconds: float, now: float = 0.0
    ) -> None:
        block = BlockTiming(
            first_index=self._index,
            drafted_count=0,
            accepted_count=0,
            draft_seconds=0.0,
            wire_seconds=0.0,
            wait_seconds=0.0,
            verify_seconds=0.0,
            drafted_ahead=False,
            start_seconds=self.seconds,
            committed_count=tokens,
            proposer=proposer,
        )
        self._ledger.record(self._session, self._verifier, block, now)
        self._index += tokens
        self.seconds += seconds

    def anew(self) -> None:
        """Another generation of the session."""
        self.seconds = 0.0


def test_a_gain_is_alones_seconds_a_token_over_the_pairs() -> None:
    ledger = SpeedLedger()
    stream = Stream(ledger)
    for _ in range(100):
        stream.say(None, 1, 0.010)
        stream.say(FAST, 5, 0.025)
        stream.say(SLOW, 2, 0.040)
    # The last block's end is not known.
    stream.say(None, 1, 0.0)
    gains = ledger.gains(0.0)
    assert gains == {
        ("v", FAST): pytest.approx(2.0),
        ("v", SLOW): pytest.approx(0.5),
    }


def test_little_says_nothing_nor_does_a_proposer_without_alone() -> None:
    ledger = SpeedLedger()
    stream = Stream(ledger)
    for _ in range(200):
        stream.say(FAST, 5, 0.025)
    assert ledger.gains(0.0) == {}
    for _ in range(int(LEAST_TOKENS) // 2):
        stream.say(None, 1, 0.01)
    stream.say(FAST, 5, 0.025)
    assert ledger.gains(0.0) == {}
    # Of another verifier neither.
    other = Stream(ledger, "other", "w")
    for _ in range(200):
        other.say(None, 1, 0.01)
    assert ledger.gains(0.0) == {}


def test_between_two_generations_there_is_no_telling() -> None:
    ledger = SpeedLedger()
    stream = Stream(ledger)
    for _ in range(40):
        for _ in range(10):
            stream.say(None, 1, 0.01)
        for _ in range(10):
            stream.say(FAST, 5, 0.025)
        # A person reads for an hour, and the clock of the next answer begins anew.
        stream.anew()
    assert ledger.gains(0.0) == {("v", FAST): pytest.approx(2.0)}


def test_what_was_long_ago_is_forgotten_and_what_is_new_outweighs_what_was() -> None:
    ledger = SpeedLedger()
    stream = Stream(ledger)
    for pace in (0.05, 0.02):
        for _ in range(2000):
            stream.say(None, 1, 0.01)
            stream.say(FAST, 1, pace)
    assert ledger.gains(0.0)["v", FAST] == pytest.approx(0.5, rel=0.1)
    assert ledger.gains(KEPT_SECONDS) == {}


def test_what_is_kept_is_bounded() -> None:
    ledger = SpeedLedger()
    for number in range(3 * MOST_KEPT):
        stream = Stream(ledger, f"s{number}")
        for _ in range(70):
            stream.say(None, 1, 0.01, now=number)
            stream.say(("node", f"m{number}"), 1, 0.01, now=number)
    assert len(ledger.gains(0.0)) < MOST_KEPT
