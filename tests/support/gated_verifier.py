"""A verifier whose forwards wait until a test lets them, and a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.verifier import Feed, Output
from tests.support import hash_verifier as hashing
from tests.support.patience import PATIENCE_SECONDS


class GatedVerifier(hashing.HashVerifier):
    """Runs as many forwards as it is let, from when it is shut on."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Semaphore(0)
        self._is_shut = False
        self.come_count = 0
        """Forwards that came to the gate."""

    def shut(self) -> None:
        """The next ones wait."""
        self._is_shut = True

    def let(self, count: int) -> None:
        """So many more may run."""
        self._gate.release(count)

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """At the gate first."""
        self.come_count += self._is_shut
        assert not self._is_shut or self._gate.acquire(timeout=PATIENCE_SECONDS)
        return super().forward_batch(feeds)


@dataclass
class StandingClock:
    """Stands until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time that it is set to."""
        return self.now
