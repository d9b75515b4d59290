"""Memory of pieces that are sent, used again once nobody has them any more.

Fresh memory of some MB costs a page fault for every 4 KB, several times what the
copy into it does.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np
from numpy.typing import NDArray

MOST_SPARE_BYTES = 16 << 20


class PieceMemory:
    """Of one link. Any thread may call."""

    def __init__(self, most_spare_bytes: int = MOST_SPARE_BYTES) -> None:
        self._most_spare_bytes = most_spare_bytes
        self._lock = threading.Lock()
        self._spares: list[NDArray[np.uint8]] = []

    @property
    def spare_bytes(self) -> int:
        """Bytes that wait to be used again."""
        with self._lock:
            return sum(spare.nbytes for spare in self._spares)

    def take(self, count: int) -> NDArray[np.uint8]:
        """`count` bytes, which come back by themselves with the last reference to them.

        A view of them, and a memoryview, is a reference.
        """
        with self._lock:
            fits = (at for at, spare in enumerate(self._spares) if spare.nbytes >= count)
            at = next(fits, None)
            whole = self._spares.pop(at) if at is not None else np.empty(count, np.uint8)
        # An array of its own over the same memory: `part` outlives its views, `whole` does not.
        part = np.frombuffer(whole.data, np.uint8, count)
        weakref.finalize(part, self._give_back, whole).atexit = False
        return part

    def _give_back(self, whole: NDArray[np.uint8]) -> None:
        with self._lock:
            kept = sum(spare.nbytes for spare in self._spares)
            if kept + whole.nbytes <= self._most_spare_bytes:
                self._spares.append(whole)
