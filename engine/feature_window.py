"""The latest context vectors of a session, a bounded number of them."""

from __future__ import annotations

import numpy as np

from engine.features import ContextVectors

DEFAULT_POSITIONS = 512


class FeatureWindow:
    """Vectors of the last `positions` committed positions at most, in position order.

    Bounded, so that a verifier's memory does not grow with the history; enough
    for a drafter that was restarted to go on. Used by one thread at a time.
    """

    def __init__(self, width: int, positions: int = DEFAULT_POSITIONS) -> None:
        """`width` values a vector."""
        self._positions = positions
        self._vectors = np.zeros((0, width), np.float32)
        self._end = 0

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        return self._end - len(self._vectors)

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
        if vectors.ndim != 2 or vectors.shape[1] != self._vectors.shape[1]:
            raise ValueError(f"vectors {vectors.shape} are not [n, {self._vectors.shape[1]}]")
        kept = self._vectors if first == self._end else self._vectors[:0]
        self._vectors = np.concatenate([kept, vectors])[-self._positions :]
        self._end = first + len(vectors)

    def since(self, position: int) -> tuple[int, ContextVectors]:
        """The vectors from `position` on that are there, and the position of the first."""
        start = min(max(position, self.first), self._end)
        return start, self._vectors[start - self.first :]
