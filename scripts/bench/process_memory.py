"""Peak memory of a piece of work: of the process, and as torch's allocator gave it out."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from torch.profiler import ProfilerActivity, profile

PEAK_IS = {
    "peak_memory_bytes": (
        "high-water mark of the resident memory (VmHWM, reset before) above what was resident "
        "at the start; null where the system cannot reset it"
    ),
    "peak_allocated_bytes": (
        "largest sum of bytes that torch's CPU allocator had given out and not got back since "
        "the start, by its profiler's memory events, in a pass of its own"
    ),
    "cache_bytes": "bytes of the key and value tensors, asked of the tensors",
}
_RESET_PEAK = "5"
"""Written to /proc/self/clear_refs it resets VmHWM; see proc_pid_clear_refs(5)."""


class PeakMemory:
    """A context manager: `bytes` is how far resident memory rose, None where unknown."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._before = 0

    def __enter__(self) -> PeakMemory:
        trim()
        self._before = psutil.Process().memory_info().rss
        if sys.platform == "linux":
            Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if sys.platform == "linux":
            self.bytes = max(0, _high_water_bytes() - self._before)


def allocation_peak(work: Callable[[], object]) -> int:
    """The most bytes that torch's CPU allocator had given out at once in `work()`, from its start.

    The profiler slows the work down many times.
    """
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    profiler.start()
    work()
    profiler.stop()
    # Its own summary gives out memory by operator; the raw events come in the order of time.
    results: Any = profiler.profiler and profiler.profiler.kineto_results
    changes = [event for event in results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: int(event.start_ns()))
    return max(accumulate((int(event.nbytes()) for event in changes), initial=0))


def trim() -> None:
    """Gives freed memory back to the system, where its allocator keeps it (glibc)."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _high_water_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
