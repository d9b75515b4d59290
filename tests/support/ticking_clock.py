"""A clock that goes on when it is looked at."""

from __future__ import annotations


class TickingClock:
    """A second passes each time that somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
