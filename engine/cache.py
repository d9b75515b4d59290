"""The contract of key/value caches.

A cache holds the keys and values of the history's first `length` positions,
as far as its rule keeps them. Positions are absolute. A forward writes its
tokens' K/V provisionally at `length`, `length + 1`, ...; `truncate` then keeps
a committed prefix of them. Provisional positions never widen the window: query
i attends to j exactly when `engine.positions.attends(i, j, sink, window)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class CacheKind(StrEnum):
    """How keys and values are kept."""

    CONTIGUOUS = "contiguous"
    SINK_WINDOW = "sink_window"


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What cache to allocate.

    `capacity` (tokens) is the longest history of `contiguous`, and ignored by
    `sink_window`; `sink` and `window` (tokens, sink >= 0, window >= 1) are
    those of `sink_window`, and ignored by `contiguous`.
    """

    kind: CacheKind
    capacity: int = 0
    sink: int = 0
    window: int = 0


class KvCache(Protocol):
    """One session's keys and values, all layers. Owned by one thread at a time."""

    @property
    def spec(self) -> CacheSpec:
        """What was allocated."""
        ...

    @property
    def length(self) -> int:
        """Positions written, provisional ones included: the next one's index."""
        ...

    @property
    def resident(self) -> int:
        """Positions below `length` that the next query can attend to."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of the K/V tensors allocated, summed over the tensors themselves."""
        ...

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions.

        Exact for every length from the last forward's start to `self.length`;
        raises `ValueError` outside that range.
        """
        ...
