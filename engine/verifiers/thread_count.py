"""How many threads a verifier's forwards take: the fewest that lose no speed.

Threads beyond those gain nothing for a model so small that a step is mostly waiting
for each other, and take the cores from whatever else the node does: its streams, its
drafts, other models. What a row of a product or a segment of keys sums up is never
split between threads, but where their shares end may select another kernel: the bits
of a model with one K/V head can differ from one number to another. So it is settled
first, `engine.verifiers.exactness` checks with it, the card tells it, and nothing changes it
while the verifier serves.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Protocol

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.verifiers.calibration import measure_steps

SLACK = 1.1
"""Half the threads are enough when each step takes at most so many times as long."""
LONG_STEP_SECONDS = 0.02
"""A step that takes longer has work for all threads, and would take long to measure."""
ROUNDS = 5


class Threads(Protocol):
    """The threads that forwards of the calling thread take."""

    @property
    def count(self) -> int:
        """How many there are now."""
        ...

    def use(self, count: int) -> None:
        """Takes `count` from now on, at least 1."""
        ...


def settle_threads(verifier: Verifier, threads: Threads, clock: Callable[[], float]) -> int:
    """Gives forwards of the calling thread the fewest threads that lose no speed; how many.

    Halves the number as long as forwards of one token and of a whole block stay about
    as fast. `clock` gives seconds, as `time.perf_counter`.
    """
    count = threads.count
    while count > 1 and _is_enough(verifier, threads, count, count // 2, clock):
        count //= 2
    threads.use(count)
    return count


def _is_enough(
    verifier: Verifier, threads: Threads, many: int, few: int, clock: Callable[[], float]
) -> bool:
    """Whether `few` threads compute about as fast as `many`; measured in turn."""
    seconds: dict[int, list[tuple[float, ...]]] = {many: [], few: []}
    for _ in range(ROUNDS):
        for count, measured in seconds.items():
            threads.use(count)
            steps = measure_steps(verifier, clock, counts=(1, verifier.info.width), repeats=1)
            measured.append(tuple(each for _, each in steps))
            if max(measured[0]) > LONG_STEP_SECONDS:
                return False
    medians = {
        count: [statistics.median(step) for step in zip(*measured, strict=True)]
        for count, measured in seconds.items()
    }
    return all(less <= SLACK * more for more, less in zip(medians[many], medians[few], strict=True))
