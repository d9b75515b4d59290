"""Seconds of single steps, the same way for every side of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

WARM_STEPS = 2
"""Steps at the start that do not count: they page in weights and grow buffers."""
LEAST_STEPS = 3


class Ticking(Protocol):
    """Whoever hears of the end of every step."""

    @property
    def most_steps(self) -> int:
        """Steps after which it has certainly had enough."""
        ...

    def tick(self) -> bool:
        """One more step has ended; whether that is enough."""
        ...


class StepTimer:
    """Hears of the end of every step, and says when there are enough.

    Enough are `count` counted steps, or `LEAST_STEPS` once `limit_seconds` have
    passed since the first. `clock` gives seconds, as `time.perf_counter`.
    """

    def __init__(self, count: int, limit_seconds: float, clock: Callable[[], float]) -> None:
        self._count = count
        self._limit = limit_seconds
        self._clock = clock
        self._ends: list[float] = []

    @property
    def most_steps(self) -> int:
        """Steps after which it has certainly had enough."""
        return 1 + WARM_STEPS + self._count

    @property
    def seconds(self) -> list[float]:
        """Of each counted step, from the end of the one before it to its own."""
        ends = self._ends[WARM_STEPS:]
        return [end - start for start, end in pairwise(ends)]

    def tick(self) -> bool:
        """One more step has ended; whether that is enough."""
        self._ends.append(self._clock())
        counted = len(self._ends) - 1 - WARM_STEPS
        late = self._ends[-1] - self._ends[0] > self._limit
        return counted >= self._count or (late and counted >= LEAST_STEPS)
