"""Who waits awake, and when it stops: nothing comes, or others need the core."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.roles.archive import adaptive_spin
from kakeya_fleet.node.roles.archive.adaptive_spin import ASLEEP_WAITS, AdaptiveSpin


class Core:
    """Counts what it is told to."""

    def __init__(self) -> None:
        self.preemptions = 0

    def __call__(self) -> int:
        return self.preemptions


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    counted = Core()
    monkeypatch.setattr(adaptive_spin, "preemptions", counted)
    return counted


def awake_waits(waits: AdaptiveSpin, core: Core, count: int, *, missed: int, preempted: int) -> int:
    """Of `count` waits, with a miss and a preemption in every so many awake; 0 for none."""
    awake = 0
    for _ in range(count):
        if not waits.begin():
            continue
        awake += 1
        if preempted and awake % preempted == 0:
            core.preemptions += 1
        waits.end(came=not (missed and awake % missed == 0))
    return awake


def test_the_end_of_each_step_and_a_rare_preemption_change_nothing(core: Core) -> None:
    assert awake_waits(AdaptiveSpin(1.0), core, 1000, missed=4, preempted=50) == 1000


def test_what_never_comes_is_waited_for_asleep(core: Core) -> None:
    awake = awake_waits(AdaptiveSpin(1.0), core, 10 * ASLEEP_WAITS, missed=1, preempted=0)
    assert awake < 0.1 * 10 * ASLEEP_WAITS


def test_a_core_that_others_need_is_left_to_them(core: Core) -> None:
    awake = awake_waits(AdaptiveSpin(1.0), core, 10 * ASLEEP_WAITS, missed=0, preempted=5)
    assert awake < 0.25 * 10 * ASLEEP_WAITS


def test_it_is_tried_again(core: Core) -> None:
    waits = AdaptiveSpin(1.0)
    awake_waits(waits, core, ASLEEP_WAITS, missed=1, preempted=0)
    awake_waits(waits, core, ASLEEP_WAITS, missed=0, preempted=0)
    assert awake_waits(waits, core, 100, missed=0, preempted=0) == 100


def test_without_time_it_sleeps_at_once(core: Core) -> None:
    assert awake_waits(AdaptiveSpin(0.0), core, 10, missed=0, preempted=0) == 0


def test_the_system_counts_preemptions() -> None:
    assert adaptive_spin.preemptions() >= 0
