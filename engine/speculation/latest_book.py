"""What the latest session found, for the next one of its kind to begin with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

KEPT_SECONDS = 900.0
"""After so long it may be another matter."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class LatestBook(Generic[Key, Value]):
    """The latest finding of each kind, for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._found: dict[Key, tuple[Value, float]] = {}

    def get(self, key: Key) -> Value | None:
        """None where nothing was found of late."""
        found = self._found.get(key)
        return None if found is None or self._clock() - found[1] >= KEPT_SECONDS else found[0]

    def put(self, key: Key, found: Value) -> None:
        """A session rests or ends, and has found this."""
        now = self._clock()
        kept = {kind: each for kind, each in self._found.items() if now - each[1] < KEPT_SECONDS}
        self._found = {**kept, key: (found, now)}
