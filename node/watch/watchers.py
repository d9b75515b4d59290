"""Those who watch something, and what they have not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import WatcherTooSlow

WATCH_QUEUE = 256

Message = TypeVar("Message")


class Watcher(Generic[Message]):
    """One watcher's queue of at most `most` messages. Belongs to one event loop."""

    def __init__(self, most: int = WATCH_QUEUE) -> None:
        self._most = most
        self._messages: deque[Message] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self.too_slow = False

    def put(self, message: Message) -> None:
        """Adds a message; a full queue drops all of them and ends the watcher."""
        if len(self._messages) >= self._most:
            self.too_slow = True
            self._messages.clear()
        if not self.too_slow:
            self._messages.append(message)
        self._woken.set()

    def end(self) -> None:
        """Ends the watch after what is queued."""
        self._ended = True
        self._woken.set()

    async def next(self) -> Message | None:
        """The next message, None at the end. Raises `WatcherTooSlow`."""
        while not self._messages:
            if self.too_slow:
                raise WatcherTooSlow(
                    f"the watcher fell more than {self._most} changes behind; watch again"
                )
            if self._ended:
                return None
            self._woken.clear()
            await self._woken.wait()
        return self._messages.popleft()


class Watchers(Generic[Message]):
    """Hands every message to every watcher."""

    def __init__(self, metrics: NodeMetrics, most: int = WATCH_QUEUE) -> None:
        """`most` messages may wait for a watcher."""
        self._metrics = metrics
        self._most = most
        self._watchers: set[Watcher[Message]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._watchers)

    @contextmanager
    def watcher(self) -> Iterator[Watcher[Message]]:
        """A watcher for as long as the context lasts."""
        watcher: Watcher[Message] = Watcher(self._most)
        if self._closed:
            watcher.end()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def publish(self, message: Message) -> None:
        """Queues the message; a watcher that is too slow is dropped and counted."""
        for watcher in list(self._watchers):
            watcher.put(message)
            if watcher.too_slow:
                self._watchers.discard(watcher)
                self._metrics.watchers_dropped.inc()

    def close(self) -> None:
        """Ends every watch, so that the server can stop."""
        self._closed = True
        for watcher in self._watchers:
            watcher.end()
