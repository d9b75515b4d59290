"""How busy cores are told to be: from the kernel's counts and a clock, both a test's own."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import pytest

from kakeya_fleet.node.watch.cpu_use import CoreTimes, CpuMeter, CpuUse, core_times, own_cores

# user nice system idle iowait irq softirq steal guest guest_nice; core 2 is switched off.
STAT = """cpu  999 9 9 9 9 9 9 9 9 9
cpu0 10 1 5 100 20 2 1 3 7 1
cpu1 50 0 0 50 0 0 0 0 0 0
cpu3 4 0 0 96 0 0 0 0 0 0
intr 12345 0 9
ctxt 7
"""


@pytest.fixture
def stat(tmp_path: Path) -> Path:
    file = tmp_path / "stat"
    file.write_text(STAT)
    return file


def test_the_cores_that_are_asked_for_count_by_their_numbers_and_guests_once(stat: Path) -> None:
    assert core_times({0}, stat) == CoreTimes(busy=22, idle=120)
    assert core_times({3}, stat) == CoreTimes(busy=4, idle=96)
    assert core_times({0, 1, 3}, stat) == CoreTimes(busy=76, idle=266)


def test_what_the_system_does_not_tell_is_none(stat: Path) -> None:
    assert core_times({0}, stat.parent / "none") is None
    assert core_times({7}, stat) is None
    stat.write_text("")
    assert core_times({0}, stat) is None


class Machine:
    """Four cores of which a test says what they did."""

    def __init__(self) -> None:
        self.times: CoreTimes | None = CoreTimes(5000.0, 90_000.0)
        self.own = 3.0
        self.at = 77.0

    def meter(self) -> CpuMeter:
        def read(cores: Collection[int]) -> CoreTimes | None:
            assert len(cores) == 4
            return self.times

        return CpuMeter(
            range(4), read=read, process_seconds=lambda: self.own, clock=lambda: self.at
        )

    def passes(self, seconds: float, busy: float, idle: float, own: float) -> None:
        assert self.times is not None
        self.times = CoreTimes(self.times.busy + busy, self.times.idle + idle)
        self.own += own
        self.at += seconds


def test_shares_are_those_of_the_time_between_two_looks() -> None:
    machine = Machine()
    meter = machine.meter()
    assert meter.latest == CpuUse(None, None)
    machine.passes(2.0, busy=600, idle=200, own=4.0)
    assert meter.look() == meter.latest == CpuUse(host=0.75, own=0.5)
    machine.passes(1.0, busy=0, idle=400, own=0.0)
    assert meter.look() == CpuUse(host=0.0, own=0.0)


def test_what_is_not_known_is_none_and_never_0() -> None:
    machine = Machine()
    meter = machine.meter()
    told, machine.times = machine.times, None
    machine.own, machine.at = machine.own + 1.0, machine.at + 1.0
    assert meter.look() == CpuUse(host=None, own=0.25)
    machine.times, machine.at = told, machine.at + 1.0
    # One count tells nothing yet.
    assert meter.look() == CpuUse(host=None, own=0.0)
    # Neither does a moment without a tick.
    assert meter.look() == CpuUse(None, None)


def test_clocks_that_differ_by_a_tick_make_no_share_outside_0_to_1() -> None:
    machine = Machine()
    meter = machine.meter()
    machine.passes(1.0, busy=401, idle=-3, own=4.02)
    assert meter.look() == CpuUse(host=1.0, own=1.0)
    machine.passes(1.0, busy=-1, idle=400, own=0.0)
    assert meter.look() == CpuUse(host=0.0, own=0.0)


def test_this_machine_tells_and_a_process_that_computes_has_more_than_an_idle_one() -> None:
    cores = own_cores()
    before = core_times(cores)
    assert cores
    assert before is not None
    clock = [0.0]
    meter = CpuMeter(clock=lambda: clock[0])
    began = time.process_time()
    while time.process_time() - began < 0.02:
        pass
    after = core_times(cores)
    assert after is not None
    assert after.busy >= before.busy
    # Whatever the machine did meanwhile: of one second of its cores this process had so much.
    clock[0] = 1.0
    worked = meter.look().own
    assert worked is not None
    assert worked >= 0.02 / len(cores)
    clock[0] = 2.0
    rested = meter.look().own
    assert rested is not None
    assert rested < worked
