"""The rate of the latest seconds of something that only grows."""

from __future__ import annotations

from collections import deque

MOST_MARKS = 256


class LatestRate:
    """Rate over the latest `window_seconds`, from the amounts reached at given times.

    Seconds are those of any clock that never goes back.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        # Marks closer together than this would be forgotten before the window is over.
        self._least_gap = window_seconds / (MOST_MARKS - 2)
        self._marks: deque[tuple[float, float]] = deque(maxlen=MOST_MARKS)

    def reached(self, amount: float, now: float) -> None:
        """The amount in all is `amount` at `now`."""
        marks = self._marks
        if len(marks) > 1 and now - marks[-2][0] < self._least_gap:
            marks.pop()
        marks.append((now, amount))
        # One mark from before the window stays: the rate is over whole steps.
        while len(marks) > 2 and now - marks[1][0] >= self._window_seconds:
            marks.popleft()

    def rate(self, now: float) -> float:
        """Amount a second up to `now`; 0.0 while unknown, and when nothing came for a window."""
        marks = self._marks
        if len(marks) < 2 or now - marks[-1][0] >= self._window_seconds:
            return 0.0
        first, last = marks[0], marks[-1]
        seconds = last[0] - first[0]
        return max(0.0, last[1] - first[1]) / seconds if seconds > 0.0 else 0.0


def remaining_seconds(done: float, total: float, rate: float) -> float:
    """Seconds until `done` is `total` at `rate` a second; 0.0 while unknown, and at the end."""
    left = total - done
    return left / rate if left > 0.0 and rate > 0.0 else 0.0
