"""Faults of what a node does besides its calls: told, counted, and no end of the node."""

import asyncio
import errno
import os

import pytest

from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.errors import CloneYields
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.background import BackgroundTasks, Work
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Works:
    """Works that fail as often as a test says, then wait until they are cancelled."""

    def __init__(self, *faults: Exception) -> None:
        self._faults = list(faults)
        self.is_under_way = asyncio.Event()

    async def __call__(self) -> None:
        if self._faults:
            raise self._faults.pop(0)
        self.is_under_way.set()
        await asyncio.Event().wait()


@pytest.fixture
def events() -> EventLog:
    return EventLog()


async def test_what_runs_as_long_as_the_node_begins_again(
    metrics: NodeMetrics, events: EventLog
) -> None:
    works = Works(NO_FILES, NO_FILES, ValueError("two\nlines."))
    async with asyncio.TaskGroup() as owner:
        tasks = BackgroundTasks(owner, events, metrics, Backoff(0.001, 0.002))
        kept = tasks.keep("samples", works)
        await works.is_under_way.wait()
        kept.cancel()
    told = [event.message for event in events.latest if event.kind is EventKind.BACKGROUND_FAULT]
    assert told[0] == (
        "samples failed: OSError: [Errno 24] Too many open files. It begins again in 0.001 s."
    )

    def counted(error: str) -> float | None:
        labels = {"task": "samples", "error": error}
        return metrics.registry.get_sample_value("kakeya_background_faults_total", labels)

    assert (counted("OSError"), counted("ValueError")) == (2, 1)


async def test_faults_in_a_row_are_one_event(metrics: NodeMetrics, events: EventLog) -> None:
    works = Works(*[NO_FILES] * 5)
    async with asyncio.TaskGroup() as owner:
        tasks = BackgroundTasks(owner, events, metrics, Backoff(0.001, 60.0))
        kept = tasks.keep("samples", works)
        await works.is_under_way.wait()
        kept.cancel()
    assert len(events.latest) == 1


async def test_what_is_done_once_ends_with_its_fault(
    metrics: NodeMetrics, events: EventLog
) -> None:
    async with asyncio.TaskGroup() as owner:
        tasks = BackgroundTasks(owner, events, metrics)
        await tasks.once("a call", Works(ValueError("two\nlines.")))
    assert [event.message for event in events.latest] == [
        "a call failed: ValueError: two lines. It is not tried again."
    ]


async def test_what_is_cancelled_before_it_runs_was_never_begun(
    metrics: NodeMetrics, events: EventLog
) -> None:
    begun: list[str] = []

    async def work() -> None:
        raise AssertionError("a cancelled work ran")

    def begin() -> Work:
        begun.append("work")
        return work()

    async with asyncio.TaskGroup() as owner:
        BackgroundTasks(owner, events, metrics).once("a call", begin).cancel()
    assert not begun


async def test_what_stops_a_node_stops_it(metrics: NodeMetrics, events: EventLog) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as owner:
            tasks = BackgroundTasks(owner, events, metrics)
            tasks.keep("gossip", Works(CloneYields("another is here", "join again")))
            tasks.keep("samples", Works())
    assert caught.group_contains(CloneYields)
    assert not events.latest


async def test_what_comes_when_all_works_have_ended_is_cancelled(
    metrics: NodeMetrics, events: EventLog
) -> None:
    """As gossip does to a node that leaves: it is no fault, and no work is left behind."""
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    async with asyncio.TaskGroup() as owner:
        tasks = BackgroundTasks(owner, events, metrics)
        await tasks.once("gossip call", work)
    assert begun == ["work"]
    late = tasks.once("gossip call", work)
    assert late.cancelled()
    assert begun == ["work"]
    assert not events.latest
