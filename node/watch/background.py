"""The node's works besides its calls: a fault ends none of them for good, and never the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import structlog

from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

_log = structlog.get_logger(__name__)

Work = Coroutine[object, object, None]


AGAIN = Backoff(1.0, 60.0)
"""A work that failed begins again; one that ran for longer than the longest ends the row."""


class FaultBook:
    """Where faults besides calls are told. `count` and `announce` belong to the loop's thread."""

    def __init__(self, events: EventLog, metrics: NodeMetrics) -> None:
        self._events = events
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()

    def count(self, name: str, error: Exception, then: str) -> None:
        """Counts a fault of `name`, and logs it with its traceback; `then` is what follows."""
        self._metrics.background_faults.labels(name, type(error).__name__).inc()
        _log.error("background_fault", task=name, then=then, exc_info=error)

    def announce(self, name: str, error: Exception, then: str) -> None:
        """Has it among the node's events."""
        self._events.add(EventKind.BACKGROUND_FAULT, f"{name} failed: {_named(error)}. {then}")

    def of_worker(self, name: str, error: Exception, fault_count: int) -> None:
        """A model's thread failed, for the `fault_count`-th time in a row. Called in any thread."""
        # A loop that is closed has nobody left to be told.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._of_worker, name, error, fault_count)

    def _of_worker(self, name: str, error: Exception, fault_count: int) -> None:
        name, then = f"thread {name}", "What waited for it ended with WORKER_FAULT; it goes on."
        self.count(name, error, then)
        if fault_count == 1:
            self.announce(name, error, then)


class BackgroundTasks:
    """Tasks of one owner, which none of them cancels but by a `NodeError`: that stops a node.

    Every other fault is counted by its task and its type, is in the log with its traceback, and
    the first of a row of a task's faults among the node's events. Belongs to the event
    loop's thread.
    """

    def __init__(
        self,
        owner: asyncio.TaskGroup,
        events: EventLog,
        metrics: NodeMetrics,
        again: Backoff = AGAIN,
    ) -> None:
        self._owner = owner
        self._book = FaultBook(events, metrics)
        self._again = again

    def once(self, name: str, begin: Callable[[], Work]) -> asyncio.Future[None]:
        """Runs what `begin` makes to its end; a fault is its end too.

        It is made by the task: one that is cancelled before it runs leaves no work behind that
        nobody awaits. What comes when all works have ended, as gossip does to a node that leaves,
        is cancelled at once.
        """
        work = self._once(name, begin)
        try:
            return self._owner.create_task(work, name=name)
        except RuntimeError:
            # The group takes no more.
            work.close()
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            over.cancel()
            return over

    def keep(self, name: str, begin: Callable[[], Work]) -> asyncio.Task[None]:
        """Runs what `begin` makes until it ends or is cancelled; after a fault it begins again."""
        return self._owner.create_task(self._keep(name, begin), name=name)

    async def _once(self, name: str, begin: Callable[[], Work]) -> None:
        try:
            await begin()
        except NodeError:
            raise
        except Exception as error:  # noqa: BLE001 whatever it is must not end the node
            then = "It is not tried again."
            self._book.count(name, error, then)
            self._book.announce(name, error, then)

    async def _keep(self, name: str, begin: Callable[[], Work]) -> None:
        clock = asyncio.get_running_loop().time
        fault_count = 0
        while True:
            began = clock()
            try:
                return await begin()
            except NodeError:
                raise
            except Exception as error:  # noqa: BLE001 whatever it is must not end the node
                ran_long = clock() - began > self._again.longest_seconds
                fault_count = 1 if ran_long else fault_count + 1
                pause = self._again.pause(fault_count)
                then = f"It begins again in {pause:g} s."
                self._book.count(name, error, then)
                if fault_count == 1:
                    self._book.announce(name, error, then)
            await asyncio.sleep(pause)


def _named(error: Exception) -> str:
    """Its type and its words, in one line."""
    words = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
