"""What steps of a model cost by their size, as measured when it was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """(token count, seconds) by rising count; counts from 1, seconds above 0."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, points: Sequence[tuple[int, float]]) -> MeasuredSteps:
        """Steps from what was measured; without any, or with one of 0 seconds, `FLAT`."""
        rising = tuple(sorted(points))
        return cls(rising) if rising and all(seconds > 0.0 for _, seconds in rising) else FLAT

    def seconds(self, token_count: int) -> float:
        """Seconds of a step: those of the next larger measured count.

        A forward is padded to the next count of rows that it can have. Above the
        largest it grows in proportion.
        """
        for count, seconds in self.points:
            if token_count <= count:
                return seconds
        count, seconds = self.points[-1]
        return seconds * token_count / count

    def rising(self, most: int) -> tuple[float, ...]:
        """`seconds` of 1 to `most` tokens."""
        return _rising(self, most)


@lru_cache(maxsize=256)
def _rising(steps: MeasuredSteps, most: int) -> tuple[float, ...]:
    return tuple(steps.seconds(count) for count in range(1, most + 1))


FLAT = MeasuredSteps(((1 << 30, 1.0),))
"""A step of any size takes the same, in units of itself."""
