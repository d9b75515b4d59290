"""A road's end: the first reason stands, and everybody who waits hears it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kakeya_fleet.node.links.roads.contract import RoadFailed


class RoadFault:
    """Whether and why a road has ended. Belongs to one event loop.

    `on_fault` runs once, with the first reason; it must not wait.
    """

    def __init__(self, on_fault: Callable[[], None]) -> None:
        self._on_fault = on_fault
        self._reason = ""
        self._waiters: set[asyncio.Event] = set()

    @property
    def reason(self) -> str:
        """Empty while the road stands."""
        return self._reason

    def fail(self, reason: str) -> None:
        """Ends the road; what is said after the first time changes nothing."""
        if self._reason:
            return
        self._reason = reason
        self._on_fault()
        for waiter in self._waiters:
            waiter.set()

    def check(self) -> None:
        """Raises `RoadFailed` when the road has ended."""
        if self._reason:
            raise RoadFailed(self._reason)

    async def wait(self, news: asyncio.Event, is_true: Callable[[], bool]) -> None:
        """Until `is_true`, looked at whenever `news` is set. Raises `RoadFailed`."""
        self.check()
        if is_true():
            return
        self._waiters.add(news)
        try:
            while not is_true():
                news.clear()
                await news.wait()
                self.check()
        finally:
            self._waiters.discard(news)
