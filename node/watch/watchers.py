"""Those who watch something, and what they have not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import WatcherTooSlow
from kakeya_fleet.node.watch.backlog import Backlog

WATCH_QUEUE = 256

Message = TypeVar("Message")


class Watcher(Generic[Message]):
    """One watcher's queue of at most `most` messages. Belongs to one event loop.

    While it has a `backlog`, that takes the messages, `most` of them between two things
    that the watcher reads of it.
    """

    def __init__(self, most: int = WATCH_QUEUE, owner: str | None = None) -> None:
        """`owner` is whose messages it gets; None for all."""
        self.owner = owner
        self._backlog: Backlog[Message] | None = None
        self._most = most
        self._unread = 0
        self._messages: deque[Message] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self.too_slow = False

    def put(self, message: Message) -> None:
        """Adds a message; a full queue drops all of them and ends the watcher."""
        if len(self._messages) + self._unread >= self._most:
            self.too_slow = True
            self._messages.clear()
            if self._backlog is not None:
                self._backlog.clear()
        if self.too_slow:
            pass
        elif self._backlog is not None:
            self._unread += 1
            self._backlog.note(message)
        else:
            self._messages.append(message)
        self._woken.set()

    def end(self) -> None:
        """Ends the watch after what is queued."""
        self._ended = True
        self._woken.set()

    async def next(self) -> Message | None:
        """The next message, None at the end. Raises `WatcherTooSlow`."""
        while not self._messages:
            self._check_pace()
            if self._ended:
                return None
            self._woken.clear()
            await self._woken.wait()
        return self._messages.popleft()

    def begin(self, backlog: Backlog[Message]) -> None:
        """Has the backlog take the messages, until `caught_up`."""
        self._backlog = backlog

    def caught_up(self) -> None:
        """It has been told of all of its backlog."""
        self._backlog = None
        self._unread = 0

    def has_read(self) -> None:
        """It read something of its backlog. Raises `WatcherTooSlow`."""
        self._check_pace()
        self._unread = 0

    def _check_pace(self) -> None:
        if self.too_slow:
            raise WatcherTooSlow(
                f"the watcher fell more than {self._most} changes behind; watch again"
            )


class Watchers(Generic[Message]):
    """Hands every message to every watcher, or to those who may see what it is about."""

    def __init__(self, metrics: NodeMetrics, most: int = WATCH_QUEUE) -> None:
        """`most` messages may wait for a watcher."""
        self._metrics = metrics
        self._most = most
        self._watchers: set[Watcher[Message]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._watchers)

    @contextmanager
    def watcher(self, owner: str | None = None) -> Iterator[Watcher[Message]]:
        """A watcher for as long as the context lasts, of what is `owner`'s; None for all."""
        watcher: Watcher[Message] = Watcher(self._most, owner)
        if self._closed:
            watcher.end()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def publish(self, message: Message, owner: str | None = None) -> None:
        """Queues the message; a watcher that is too slow is dropped and counted.

        With `owner` it is about something of theirs alone.
        """
        for watcher in list(self._watchers):
            if watcher.owner is not None and watcher.owner != owner:
                continue
            watcher.put(message)
            if watcher.too_slow:
                self._watchers.discard(watcher)
                self._metrics.watchers_dropped.inc()

    def close(self) -> None:
        """Ends every watch, so that the server can stop."""
        self._closed = True
        for watcher in self._watchers:
            watcher.end()
