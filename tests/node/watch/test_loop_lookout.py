"""A stall that goes on: told by a thread beside the loop, which no fault ends."""

import asyncio
import threading
import time
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.loop_lookout import TASK, LoopLookout
from kakeya_fleet.node.watch.loop_stall import LoopStall, StallSettings
from kakeya_fleet.node.watch.loop_turns import LoopTurns
from kakeya_fleet.node.watch.thread_time import ThreadTime
from kakeya_fleet.node.watch.watched_loop import WatchedLoop, watched_loop
from tests.node.conftest import ValueOf

Log = list[MutableMapping[str, Any]]


class Times:
    def read(self) -> ThreadTime:
        return ThreadTime(0.0, 0.0)


class Room:
    """Turns and a lookout on one clock, which a test sets."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self.now = 0.0
        self.turns = LoopTurns(StallSettings(), Times(), lambda: self.now)
        self.lookout = LoopLookout(self.turns, metrics, 1.0, lambda: self.now)


@pytest.fixture
def room(metrics: NodeMetrics) -> Room:
    return Room(metrics)


@pytest.fixture
def log() -> Iterator[Log]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def stalls(log: Log) -> Log:
    """What is told of them; another test's threads may still have something to say."""
    return [each for each in log if each["event"] == "event_loop_is_stalled"]


def test_a_turn_that_goes_on_is_told_once_with_its_place(room: Room, log: Log) -> None:
    room.turns.begin()
    room.turns.next_step(None)
    for _ in range(5):
        room.now += 0.6
        room.lookout.look()
    (told,) = stalls(log)
    assert told["seconds"] == 1.2
    assert told["place"].startswith("kakeya_fleet.node.watch.loop_lookout.LoopLookout.look:")
    stall = room.turns.end()
    assert stall is not None
    assert stall.place == told["place"]
    room.turns.begin()
    room.now += 2.0
    room.lookout.look()
    assert len(stalls(log)) == 2


def test_rest_and_short_turns_are_not_told(room: Room, log: Log) -> None:
    for _ in range(3):
        room.now += 60.0
        room.lookout.look()
        room.turns.begin()
        room.now += 0.9
        room.lookout.look()
        assert room.turns.end() is not None
    assert not stalls(log)


def test_no_fault_ends_the_thread(
    room: Room, metrics: NodeMetrics, value_of: ValueOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def look() -> None:
        looks.release()
        raise OSError(24, "Too many open files")

    lookout = LoopLookout(room.turns, metrics, 0.001)
    monkeypatch.setattr(lookout, "look", look)
    lookout.open()
    for _ in range(3):
        assert looks.acquire(timeout=60)
    lookout.close()
    assert value_of("kakeya_background_faults_total", task=TASK, error="OSError") >= 3
    assert TASK not in {thread.name for thread in threading.enumerate()}


def test_a_real_loop_that_stands_still_is_seen_from_beside(metrics: NodeMetrics) -> None:
    told: list[LoopStall | OSError] = []

    async def hang() -> None:
        with structlog.testing.capture_logs() as captured:
            while not captured:
                time.sleep(0.01)  # noqa: ASYNC251 what a step must not do

    async def main() -> None:
        loop = watched_loop()
        assert loop is not None
        loop.tell(told.append)
        lookout = LoopLookout(loop.turns, metrics, 0.3)
        lookout.open()
        await asyncio.create_task(hang(), name="a hanging step")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lookout.close()

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(main())
    stalls = [each for each in told if isinstance(each, LoopStall)]
    (stall,) = (each for each in stalls if each.step == "a hanging step")
    assert stall.seconds > 0.3
    assert "test_loop_lookout" in stall.place
