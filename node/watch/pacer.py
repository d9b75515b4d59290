"""When to tell of things that change all the time."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Pacer(Generic[Key]):
    """Gathers changes of many things, so that each is told of at most once an interval.

    A thing that did not change lately is due at once. `now` is in the seconds of any
    clock that never goes back.
    """

    def __init__(self) -> None:
        self._told: dict[Key, float] = {}
        self._due: dict[Key, float] = {}

    def mark(self, key: Key, now: float, interval: float) -> None:
        """The thing changed; it is told of `interval` seconds after it last was, at the latest."""
        due = max(now, self._told.get(key, -math.inf) + interval)
        self._due[key] = min(due, self._due.get(key, math.inf))

    @property
    def next_due(self) -> float | None:
        """When something is due; None while nothing has changed."""
        return min(self._due.values(), default=None)

    @property
    def waiting(self) -> tuple[Key, ...]:
        """What changed and was not told of, in the order of the changes."""
        return tuple(self._due)

    def take(self, now: float) -> list[Key]:
        """What is due now; from then on it counts as told of."""
        keys = [key for key, due in self._due.items() if due <= now]
        for key in keys:
            del self._due[key]
            self._told[key] = now
        return keys

    def forget(self, key: Key) -> None:
        """The thing is no more."""
        self._due.pop(key, None)
        self._told.pop(key, None)
