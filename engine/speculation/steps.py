"""What steps of a model cost by their size, as measured when it was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """(token count, seconds) by rising count; counts from 1, seconds above 0.

    Steps that are `padded` to the next count of rows that they can have are forwards; drafts,
    which may be made of one step a token, are not.
    """

    points: tuple[tuple[int, float], ...]
    padded: bool = True

    @classmethod
    def of(cls, points: Sequence[tuple[int, float]], *, padded: bool = True) -> MeasuredSteps:
        """Steps from what was measured; without any, or with one of 0 seconds, `FLAT`."""
        rising = tuple(sorted(points))
        known = bool(rising) and all(seconds > 0.0 for _, seconds in rising)
        return cls(rising, padded) if known else FLAT

    def seconds(self, token_count: int) -> float:
        """Seconds of a step: those of the next larger measured count, or what lies between.

        Above the largest they grow in proportion.
        """
        for index, (count, seconds) in enumerate(self.points):
            if token_count <= count:
                below, below_seconds = self.points[max(0, index - 1)]
                if self.padded or below == count:
                    return seconds
                share = (token_count - below) / (count - below)
                return below_seconds + share * (seconds - below_seconds)
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
