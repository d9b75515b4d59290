"""What a thread had of the machine: its time on a core, and how long it was ready without one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_LONGEST_LINE = 64
"""Three numbers of 64 bits, two blanks and a line's end."""


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """Seconds since the thread began; `ready` is None where the system does not tell it."""

    on_core: float
    ready: float | None


class ThreadTimes(Protocol):
    """The account of one thread."""

    def read(self) -> ThreadTime:
        """What it had until now. Called in that thread; raises nothing."""
        ...


class OwnThreadTimes:
    """The account of the thread that makes it, as the kernel keeps it.

    Linux writes nanoseconds on a core, nanoseconds in a core's queue, and a count of turns
    (Documentation/scheduler/sched-stats.rst), to within a tick of 1 to 10 ms. The file stays
    open, so that a process without descriptors still knows. Elsewhere, and from the moment
    that the file cannot be read, only the time on a core is told: `on_fault` hears of it once.
    """

    def __init__(
        self, on_fault: Callable[[OSError], None], folder: str = "/proc/self/task"
    ) -> None:
        self._on_fault = on_fault
        self._descriptor = -1
        path = Path(folder, str(threading.get_native_id()), "schedstat")
        if not path.exists():
            return
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            on_fault(error)
            return
        if not any(self._numbers()):
            # A kernel that keeps no such account writes three zeros.
            self.close()

    def read(self) -> ThreadTime:
        """What the thread had until now; 2 us."""
        if self._descriptor >= 0:
            try:
                on_core, ready = self._numbers()[:2]
            except OSError as error:
                self.close()
                self._on_fault(error)
            else:
                return ThreadTime(on_core * 1e-9, ready * 1e-9)
        return ThreadTime(time.thread_time(), None)

    def close(self) -> None:
        """Gives the file back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _numbers(self) -> list[int]:
        return [int(word) for word in os.pread(self._descriptor, _LONGEST_LINE, 0).split()]
