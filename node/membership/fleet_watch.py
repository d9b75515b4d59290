"""Who watches the fleet, and what they have not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fleet.card import Card
from fleet.liveness import Liveness
from node.metrics import NodeMetrics
from node.rpc.refusals import WatcherTooSlow

WATCH_QUEUE = 256


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as this one knows it. `card` is None while only rumours name it.

    `age_seconds` since the last sign of life, 0 for the node itself;
    `round_trip_seconds` is 0 while unmeasured.
    """

    node_id: str
    card: Card | None
    liveness: Liveness
    age_seconds: float
    round_trip_seconds: float
    is_self: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """A node whose tombstone expired."""

    node_id: str


Change = NodeState | Removed


class Watcher:
    """One watcher's queue of at most 256 changes. Belongs to one event loop."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self.too_slow = False

    def put(self, change: Change) -> None:
        """Adds a change; a full queue drops all of them and ends the watcher."""
        if len(self._changes) >= WATCH_QUEUE:
            self.too_slow = True
            self._changes.clear()
        if not self.too_slow:
            self._changes.append(change)
        self._woken.set()

    def end(self) -> None:
        """Ends the watch after what is queued."""
        self._ended = True
        self._woken.set()

    async def next(self) -> Change | None:
        """The next change, None at the end. Raises `WatcherTooSlow`."""
        while not self._changes:
            if self.too_slow:
                raise WatcherTooSlow(
                    f"the watcher fell more than {WATCH_QUEUE} changes behind; watch again"
                )
            if self._ended:
                return None
            self._woken.clear()
            await self._woken.wait()
        return self._changes.popleft()


class FleetWatch:
    """Hands every change to every watcher."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics
        self._watchers: set[Watcher] = set()
        self._closed = False

    @contextmanager
    def watcher(self) -> Iterator[Watcher]:
        """A watcher for as long as the context lasts."""
        watcher = Watcher()
        if self._closed:
            watcher.end()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def publish(self, change: Change) -> None:
        """Queues the change; a watcher that is too slow is dropped and counted."""
        for watcher in list(self._watchers):
            watcher.put(change)
            if watcher.too_slow:
                self._watchers.discard(watcher)
                self._metrics.watchers_dropped.inc()

    def close(self) -> None:
        """Ends every watch, so that the server can stop."""
        self._closed = True
        for watcher in self._watchers:
            watcher.end()
