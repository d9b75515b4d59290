"""How busy the cores are that a node may run on, and how much of them is its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import psutil

PROC_STAT = Path("/proc/stat")
_IDLE, _IO_WAIT, _FIELDS = 3, 4, 8
"""Of a core's line in /proc/stat: user, nice, system, idle, iowait, irq, softirq and steal.

Guests' time, which follows, is in user and nice already; see proc_stat(5).
"""


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """What cores did since the machine's start, all together, in any one unit."""

    busy: float
    idle: float


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Shares of the cores that the node may run on, 0 to 1; None where it is not known.

    `host` is what programs of the whole machine kept busy, `own` what this process had.
    """

    host: float | None = None
    own: float | None = None


def own_cores() -> frozenset[int]:
    """The numbers of the cores that this process may run on.

    All of the machine's where the system binds no process to some. A quota of time, which
    control groups can set as well (`cpu.max`), takes none of the cores away.
    """
    if sys.platform == "linux":
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def core_times(cores: Collection[int], stat: Path = PROC_STAT) -> CoreTimes | None:
    """What `cores` did; None where the system does not tell it; 25 us on two cores.

    Elsewhere than on Linux it is what all of the machine's cores did. Time that a hypervisor
    gave to others counts as busy: nobody here could have it. What waits for a disk is idle.
    """
    if sys.platform != "linux":
        times = psutil.cpu_times()
        return CoreTimes(times.user + times.nice + times.system, times.idle)
    busy = idle = 0
    try:
        with stat.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, *fields = line.split()
                if not name.startswith("cpu"):
                    break
                # The first line has the sum of all cores.
                if name != "cpu" and int(name[3:]) in cores:
                    ticks = [int(field) for field in fields[:_FIELDS]]
                    resting = ticks[_IDLE] + ticks[_IO_WAIT]
                    idle += resting
                    busy += sum(ticks) - resting
    except OSError:
        # A sandbox hides the file, or connections have all files that may be open.
        return None
    return CoreTimes(busy, idle) if busy + idle else None


class CpuMeter:
    """Tells what the cores did between one look and the next.

    The cores are those of the moment at which it is made: libraries of threads bind the
    process's own to single ones later.
    """

    def __init__(
        self,
        cores: Collection[int] | None = None,
        *,
        read: Callable[[Collection[int]], CoreTimes | None] = core_times,
        process_seconds: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`process_seconds` are those that all threads of this process had on a core."""
        self._cores = own_cores() if cores is None else cores
        self._read = read
        self._process_seconds = process_seconds
        self._clock = clock
        self._times = read(self._cores)
        self._own, self._at = process_seconds(), clock()
        self.latest = CpuUse()
        """What the last look told; nothing before it."""

    def look(self) -> CpuUse:
        """What the cores did since the last look, or since this meter was made."""
        times, own, at = self._read(self._cores), self._process_seconds(), self._clock()
        self.latest = CpuUse(
            _busy_share(self._times, times),
            _share(own - self._own, (at - self._at) * len(self._cores)),
        )
        self._times, self._own, self._at = times, own, at
        return self.latest


def _busy_share(before: CoreTimes | None, after: CoreTimes | None) -> float | None:
    if before is None or after is None:
        return None
    busy = after.busy - before.busy
    # Linux takes some idle time back where a core ends a wait elsewhere.
    return _share(busy, busy + max(0.0, after.idle - before.idle))


def _share(part: float, whole: float) -> float | None:
    """Of 0 to 1: clocks of the two differ by a tick. None where no time has passed."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None
