"""How stalls are told: all are counted, the first of a step is an event."""

import errno
import os

import pytest

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.event_log import EventKind, EventLog, Severity
from kakeya_fleet.node.watch.loop_stall import LoopStall, StallSettings
from kakeya_fleet.node.watch.stall_report import TASK, StallReport
from tests.node.conftest import ValueOf

COMPUTING = LoopStall(0.5, "gossip", 0.4, on_core=0.42, ready=0.05)
OTHER = LoopStall(0.5, "samples", 0.4, on_core=0.5, ready=0.0)
MACHINE = LoopStall(0.5, "gossip", 0.4, on_core=0.02, ready=0.47)


class Room:
    """A report with its events, and a clock that a test sets."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self.now = 0.0
        self.events = EventLog()
        self.report = StallReport(StallSettings(), self.events, metrics, lambda: self.now)

    @property
    def messages(self) -> list[str]:
        return [event.message for event in self.events.latest]


@pytest.fixture
def room(metrics: NodeMetrics) -> Room:
    return Room(metrics)


def test_a_stall_is_counted_and_told_with_its_step(room: Room, value_of: ValueOf) -> None:
    for cause in ("computing", "waiting", "machine", "unknown"):
        assert value_of("kakeya_event_loop_stall_seconds_count", cause=cause) == 0
    room.report(COMPUTING)
    assert value_of("kakeya_event_loop_stall_seconds_count", cause="computing") == 1
    assert value_of("kakeya_event_loop_stall_seconds_sum", cause="computing") == 0.5
    (event,) = room.events.latest
    assert (event.kind, event.severity) == (EventKind.LOOP_STALLED, Severity.WARNING)
    assert event.message == (
        "The event loop stood still for 0.50 s, 0.40 s of them in gossip: 0.42 s computing, 0.05 s"
        " ready without a free core, 0.03 s waiting for a file, a lock or a thread that held the"
        " interpreter."
    )


def test_the_place_is_told_where_it_was_seen_and_nothing_is_made_up(room: Room) -> None:
    room.report(LoopStall(2.0, "gossip", 2.0, on_core=0.5, ready=None, place="a.b:7"))
    assert room.messages == [
        "The event loop stood still for 2.00 s, 2.00 s of them in gossip at a.b:7: 0.50 s"
        " computing."
    ]


def test_stalls_of_one_step_are_one_event_in_a_while(room: Room, value_of: ValueOf) -> None:
    quiet = StallSettings().quiet_seconds
    for _ in range(5):
        room.report(COMPUTING)
        room.report(OTHER)
        room.now += 0.2 * quiet - 0.1
    assert len(room.messages) == 2
    room.now = quiet
    room.report(COMPUTING)
    assert room.messages[-1].endswith(" 4 more since it was last told.")
    assert value_of("kakeya_event_loop_stall_seconds_count", cause="computing") == 11


def test_what_the_machine_does_is_told_once_whose_step_it_met(
    room: Room, value_of: ValueOf
) -> None:
    for number in range(100):
        room.report(LoopStall(0.5, f"step {number}", 0.4, on_core=0.02, ready=0.47))
    room.report(COMPUTING)
    machine, own = room.events.latest
    assert machine.severity is Severity.INFO
    assert machine.mend.startswith("Nothing in the node")
    assert own.severity is Severity.WARNING
    assert value_of("kakeya_event_loop_stall_seconds_count", cause="machine") == 100


def test_an_account_that_cannot_be_read_is_a_counted_fault(room: Room, value_of: ValueOf) -> None:
    room.report(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert value_of("kakeya_background_faults_total", task=TASK, error="OSError") == 1
    assert not room.messages


def test_what_is_remembered_of_steps_is_bounded(room: Room) -> None:
    for number in range(1000):
        stall = LoopStall(0.5, f"step {number}", 0.4, on_core=0.5, ready=0.0)
        room.report(stall)
        room.report(stall)
        room.now += 1.0
    assert len(room.report._told) <= 61
    assert len(room.report._untold) <= 61 + 64
