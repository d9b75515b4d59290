"""Turns of an event loop and their steps, timed by a clock that a test sets."""

import asyncio
from functools import partial

import pytest

from kakeya_fleet.node.watch.loop_stall import LoopStall, StallCause, StallSettings
from kakeya_fleet.node.watch.loop_turns import LoopTurns, step_name
from kakeya_fleet.node.watch.thread_time import ThreadTime


class Machine:
    """A clock, and the account of the thread that looks at it."""

    def __init__(self) -> None:
        self.now = self.on_core = self.ready = 100.0
        self.tells_ready = True
        self.read_count = 0

    def clock(self) -> float:
        return self.now

    def read(self) -> ThreadTime:
        self.read_count += 1
        return ThreadTime(self.on_core, self.ready if self.tells_ready else None)

    def passes(self, on_core: float = 0.0, ready: float = 0.0, waiting: float = 0.0) -> None:
        self.now += on_core + ready + waiting
        self.on_core += on_core
        self.ready += ready


Watched = tuple[Machine, LoopTurns]


@pytest.fixture
def watched() -> Watched:
    machine = Machine()
    return machine, LoopTurns(StallSettings(), machine, machine.clock)


def slow() -> None: ...


def quick() -> None: ...


def given(one: int, other: int) -> None: ...


def handle(function: object) -> object:
    return type("Handle", (), {"_callback": function})()


def stalled(turns: LoopTurns) -> LoopStall:
    stall = turns.end()
    assert stall is not None
    return stall


def test_a_turn_with_its_longest_step(watched: Watched) -> None:
    machine, turns = watched
    turns.begin()
    for function, seconds in ((quick, 0.01), (slow, 0.2), (quick, 0.05)):
        turns.next_step(handle(function))
        machine.passes(on_core=seconds)
    stall = stalled(turns)
    assert (stall.step, stall.place) == ("slow", "")
    assert stall.seconds == pytest.approx(0.26)
    assert stall.step_seconds == pytest.approx(0.2)


def test_the_last_step_counts_and_the_time_before_the_first(watched: Watched) -> None:
    machine, turns = watched
    turns.begin()
    turns.next_step(handle(quick))
    turns.next_step(handle(slow))
    machine.passes(on_core=0.2)
    assert stalled(turns).step == "slow"
    turns.begin()
    machine.passes(on_core=0.2)
    turns.next_step(handle(quick))
    assert stalled(turns).step == "the loop itself"


def test_many_short_steps_are_a_stall_and_a_rest_is_none(watched: Watched) -> None:
    machine, turns = watched
    for _ in range(3):
        turns.begin()
        turns.next_step(handle(quick))
        machine.passes(on_core=0.1)
        assert turns.end() is None
        machine.passes(waiting=30.0)
    turns.begin()
    for _ in range(11):
        turns.next_step(handle(quick))
        machine.passes(on_core=0.01)
    assert stalled(turns).seconds == pytest.approx(0.11)


def test_nothing_of_a_turn_is_told_of_the_next(watched: Watched) -> None:
    machine, turns = watched
    turns.begin()
    turns.next_step(handle(slow))
    machine.passes(on_core=0.09)
    turns.seen = "there:1"
    assert turns.end() is None
    turns.begin()
    turns.next_step(handle(quick))
    machine.passes(on_core=0.08)
    turns.next_step(handle(len))
    machine.passes(on_core=0.03)
    stall = stalled(turns)
    assert (stall.step, stall.place) == ("quick", "")


def test_before_the_first_turn_nothing_stalls(watched: Watched) -> None:
    machine, turns = watched
    machine.passes(waiting=30.0)
    assert turns.end() is None


@pytest.mark.parametrize(
    ("on_core", "ready", "waiting", "cause"),
    [
        (0.2, 0.0, 0.0, StallCause.COMPUTING),
        (0.0, 0.0, 0.2, StallCause.WAITING),
        (0.0, 0.2, 0.0, StallCause.MACHINE),
        # Without what the machine took, the turn would have been short.
        (0.06, 0.07, 0.0, StallCause.MACHINE),
        (0.0, 0.5, 0.09, StallCause.MACHINE),
        # It would have been long on a free machine too.
        (0.11, 5.0, 0.0, StallCause.COMPUTING),
        (0.04, 5.0, 0.07, StallCause.WAITING),
    ],
)
def test_whose_fault_it_was(
    watched: Watched, on_core: float, ready: float, waiting: float, cause: StallCause
) -> None:
    machine, turns = watched
    # What the thread had before is none of this turn's.
    machine.passes(1.0, 2.0, 3.0)
    turns.begin()
    machine.passes(on_core, ready, waiting)
    stall = stalled(turns)
    assert stall.cause(0.1) is cause
    assert stall.on_core == pytest.approx(on_core)
    assert stall.ready == pytest.approx(ready)


def test_where_the_system_tells_only_the_time_on_a_core(watched: Watched) -> None:
    machine, turns = watched
    machine.tells_ready = False
    turns.begin()
    machine.passes(on_core=0.2)
    assert stalled(turns).cause(0.1) is StallCause.COMPUTING
    turns.begin()
    machine.passes(ready=0.2)
    stall = stalled(turns)
    assert (stall.ready, stall.cause(0.1)) == (None, StallCause.UNKNOWN)


def test_a_busy_loop_reads_its_account_seldom_and_a_rested_one_anew(watched: Watched) -> None:
    machine, turns = watched
    for _ in range(1000):
        turns.begin()
        machine.passes(on_core=0.001)
        assert turns.end() is None
    assert 30 <= machine.read_count <= 41
    # The machine took its core while it rested, and nobody waited for that.
    machine.passes(ready=5.0)
    turns.begin()
    machine.passes(on_core=0.2)
    assert stalled(turns).ready == 0.0


def test_functions_have_the_names_of_their_code() -> None:
    for function, name in (
        (quick, "quick"),
        (partial(partial(given, 1), 2), "given"),
        (asyncio.Event().set, "Event.set"),
        (None, "NoneType"),
    ):
        assert step_name(handle(function)) == name
    assert step_name(None) == "the loop itself"
