"""A verifier whose forwards wait until a test lets them, and a clock that the test moves."""

from __future__ import annotations

import asyncio
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
        self._came = threading.Condition()
        self._come_count = 0

    def shut(self) -> None:
        """The next ones wait."""
        self._is_shut = True

    def let(self, count: int) -> None:
        """So many more may run."""
        self._gate.release(count)

    async def come(self, count: int) -> None:
        """Waits until so many forwards came to the gate: what went before them is over."""
        assert await asyncio.to_thread(self._wait, count)

    def _wait(self, count: int) -> bool:
        with self._came:
            return self._came.wait_for(lambda: self._come_count >= count, PATIENCE_SECONDS)

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """At the gate first."""
        with self._came:
            self._come_count += self._is_shut
            self._came.notify_all()
        assert not self._is_shut or self._gate.acquire(timeout=PATIENCE_SECONDS)
        return super().forward_batch(feeds)


@dataclass
class StandingClock:
    """Stands until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        """The time that it is set to."""
        return self.now
