"""Pauses between tries of what fails."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 64
"""Keeps 2^n within what a float holds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential: behind the n-th failure in a row min(first * 2^(n - 1), longest) seconds."""

    first_seconds: float
    longest_seconds: float

    def pause(self, failure_count: int) -> float:
        """Seconds behind so many failures in a row, at least one."""
        doubled = self.first_seconds * 2.0 ** min(failure_count - 1, _MOST_DOUBLINGS)
        return min(self.longest_seconds, doubled)
