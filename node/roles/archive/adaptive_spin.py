"""Whether to wait for bytes awake, asking again and again, or asleep.

A core that has slept, or run another process, is up to 1.5 times slower for the
next tenths of a millisecond, which is as long as a small model's layer takes at
either end. One that waits awake is not, but takes time from others.
"""

from __future__ import annotations

import resource
import sys

AWAKE_SECONDS = 0.0006
"""Behind an answer, the next layer's queries may come as soon."""
MOST_TRUST = 16
PREEMPTION_COST = 8
"""A few are nothing; where others need the core one comes every few waits."""
ASLEEP_WAITS = 256
"""Before it is tried again: other sessions, or models of larger layers, may have ended."""


class AdaptiveSpin:
    """Of one thread's waits; learns from them. `seconds` is the longest one awake."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._trust = MOST_TRUST
        self._asleep = 0
        self._preempted = 0

    def begin(self) -> bool:
        """Whether the wait that begins is awake for a while; then `end` follows."""
        if self._asleep:
            self._asleep -= 1
            return False
        if not self.seconds:
            return False
        self._preempted = preemptions()
        return True

    def end(self, *, came: bool) -> None:
        """A wait awake has ended, and whether bytes `came`."""
        if preemptions() > self._preempted:
            self._trust -= PREEMPTION_COST
        else:
            self._trust = min(MOST_TRUST, self._trust + 1) if came else self._trust - 1
        if self._trust <= 0:
            self._trust, self._asleep = MOST_TRUST // 2, ASLEEP_WAITS


def preemptions() -> int:
    """How often this thread had to leave its core to another; 0 where nobody counts it."""
    if sys.platform == "linux":
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    return 0
