"""Work of the node that any number of callers wait for, and hear of while it goes on."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")
Status = TypeVar("Status")

TOLD_SECONDS = 0.25
"""Between two looks at it for one who waits."""
SILENT_SECONDS = 5.0
"""What does not change is told again after so long."""


class ToldWork(ABC, Generic[Result, Status]):
    """Belongs to one event loop, and to whoever does it: callers only look at it.

    `outcome` gives what it came to, or raises.
    """

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        # Everybody may have left: an error is nobody's then.
        self.outcome.add_done_callback(asyncio.Future.exception)

    @abstractmethod
    def status(self) -> Status:
        """How it stands."""

    def done(self, result: Result) -> None:
        """It came to its end; no news where it was given up before."""
        if not self.outcome.done():
            self.outcome.set_result(result)

    def failed(self, error: Exception) -> None:
        """It comes to nothing; the first error stays."""
        if not self.outcome.done():
            self.outcome.set_exception(error)

    async def statuses(self, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Status]:
        """How it stands, now and when that is another, until it has ended."""
        told: Status | None = None
        told_at = 0.0
        while not self.outcome.done():
            status, now = self.status(), clock()
            if status != told or now - told_at >= SILENT_SECONDS:
                yield status
                told, told_at = status, now
            await asyncio.wait({self.outcome}, timeout=TOLD_SECONDS)
