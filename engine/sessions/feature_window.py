"""The latest context vectors of a session, a bounded number of them."""

from __future__ import annotations

import numpy as np

from kakeya_fleet.engine.contracts.features import ContextVectors

DEFAULT_POSITIONS = 512


class FeatureWindow:
    """Vectors of the last `positions` committed positions at most, in position order.

    Bounded, so that a verifier's memory does not grow with the history; enough
    for a drafter that was restarted to go on. Used by one thread at a time, but
    what `since` gave belongs to whoever asked.
    """

    def __init__(self, width: int, positions: int = DEFAULT_POSITIONS) -> None:
        """`width` values a vector."""
        self._positions = positions
        # Written once from front to back: what `since` gave stays as it was.
        self._buffer = np.empty((2 * positions, width), np.float32)
        self._stop = 0
        self._count = 0
        self._end = 0

    @property
    def width(self) -> int:
        """Values of a vector."""
        return self._buffer.shape[1]

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        return self._end - self._count

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        return self._end

    def extend(self, first: int, vectors: ContextVectors) -> None:
        """Adds vectors [n, width] of positions `first` onwards; a gap forgets what was before.

        Raises `ValueError` when `first` is before `end`, or for another width.
        """
        if first < self._end:
            raise ValueError(f"position {first} is known already, up to {self._end}")
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise ValueError(f"vectors {vectors.shape} are not [n, {self.width}]")
        kept = self._count if first == self._end else 0
        added = vectors[-self._positions :]
        kept = min(kept, self._positions - len(added))
        self._make_room(kept, len(added))
        self._buffer[self._stop : self._stop + len(added)] = added
        self._stop += len(added)
        self._count = kept + len(added)
        self._end = first + len(vectors)

    def since(self, position: int) -> tuple[int, ContextVectors]:
        """The vectors from `position` on that are there, and the position of the first.

        Read only, and never changed by what is added later.
        """
        start = min(max(position, self.first), self._end)
        vectors = self._buffer[self._stop - (self._end - start) : self._stop]
        vectors.flags.writeable = False
        return start, vectors

    def until(self, length: int) -> FeatureWindow:
        """A window of its own with the positions below `length` that are there."""
        shorter = FeatureWindow(self.width, self._positions)
        first, vectors = self.since(0)
        if first < length:
            shorter.extend(first, vectors[: length - first])
        return shorter

    def _make_room(self, kept: int, count: int) -> None:
        """Moves the last `kept` vectors to a new buffer when `count` more do not fit."""
        if self._stop + count <= len(self._buffer):
            return
        buffer = np.empty_like(self._buffer)
        buffer[:kept] = self._buffer[self._stop - kept : self._stop]
        self._buffer, self._stop = buffer, kept
