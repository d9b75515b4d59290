"""The contract of key/value caches.

A cache holds the keys and values of the history's first `length` positions,
as far as its rule keeps them. Positions are absolute. A forward writes its
tokens' K/V provisionally at `length`, `length + 1`, ...; `truncate` then keeps
a committed prefix of them. Provisional positions never widen the window: query
i attends to j exactly when `engine.contracts.positions.attends(i, j, sink, window, tile)`; with
`restored` also to what was evicted, see `engine.contracts.evicted_store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.positions import evicted_end
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.memory.slab_pool import Slab

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.evicted_store import EvictedStore


class CacheKind(StrEnum):
    """How keys and values are kept."""

    CONTIGUOUS = "contiguous"
    SINK_WINDOW = "sink_window"
    RESTORED = "restored"
    """`SINK_WINDOW`, and a store that attends to what was evicted."""
    PACKED = "packed"
    """All positions, in this process: in tiles of few bits, but for `SINK_WINDOW`'s."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What cache to allocate.

    `capacity` (tokens) is the longest history of `contiguous` and `packed`, and ignored by
    the others; one that `grows` takes its memory as its history does, a segment
    of keys at a time, any other all of it at once. `sink` and `window` (tokens,
    sink >= 0, window >= 1) are those of the other kinds, and ignored by
    `contiguous`. `restorer` is that of `restored`, None for the others; `codec` names one
    of `engine.codecs.known` that packs for `packed`.
    """

    kind: CacheKind
    capacity: int = 0
    sink: int = 0
    window: int = 0
    restorer: RestorerSpec | None = None
    grows: bool = False
    codec: str = ""

    @property
    def keeps_all(self) -> bool:
        """Whether it has a `capacity`, and all positions up to that in its own memory."""
        return self.kind in (CacheKind.CONTIGUOUS, CacheKind.PACKED)

    @property
    def hands_over(self) -> bool:
        """Whether a store attends to what leaves its window."""
        return self.kind in (CacheKind.RESTORED, CacheKind.PACKED)

    @property
    def packed_by(self) -> str:
        """Names the codec of what leaves the window; empty where it stays as it lies."""
        return self.restorer.codec if self.restorer is not None else self.codec

    @property
    def tile(self) -> int:
        """Positions that leave the window together: more than 1 where they are packed."""
        return TILE if self.packed_by else 1

    def handed_over_end(self, length: int) -> int:
        """A history of `length` positions hands over those from `sink` to this; 0 for none."""
        left = evicted_end(max(0, length - 1), self.window, self.tile)
        return left if self.hands_over and left > self.sink else 0

    def forgotten_count(self, length: int) -> int:
        """Of the first `length` positions, those that the next query and all later ones miss.

        The query at `length - 1` sees `sink` and `window` positions of a `sink_window`
        cache; the others lose nothing.
        """
        if self.kind is not CacheKind.SINK_WINDOW:
            return 0
        return max(0, length - self.sink - self.window)


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
        """Bytes of the tensors that hold this cache, summed over the tensors themselves.

        Those shared with another cache count in both.
        """
        ...

    @property
    def slabs(self) -> Sequence[Slab[Any]]:
        """What it holds of the pool: what caches free together, they alone may not."""
        ...

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this cache is released now."""
        ...

    @property
    def evicted(self) -> EvictedStore | None:
        """What keeps positions that left the window; None where none is kept apart."""
        ...

    @property
    def widest(self) -> int:
        """The most tokens of one forward into this cache; at most `window` where one hands over."""
        ...

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys and values are all still there."""
        ...

    @property
    def reach(self) -> int:
        """The positions below this have their memory: the limit, unless the cache `grows`."""
        ...

    def growth_bytes(self, count: int) -> int:
        """Bytes that the next `count` positions take from the pool, copies on write aside."""
        ...

    def grow(self, count: int) -> None:
        """Takes the memory of the next `count` positions now, as far as its limit.

        Nothing to do where the cache has all of its memory already. Raises `OutOfKvMemory` with
        nothing taken.
        """
        ...

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions.

        Exact for every length from the last forward's start to `self.length`;
        raises `ValueError` outside that range.
        """
        ...

    def fork(self, length: int) -> KvCache:
        """A cache of the first `length` positions that shares what neither will change.

        What either will write is shared until then. Raises `ValueError` outside
        `forkable_from` to `self.length`, `OutOfKvMemory` with nothing taken.
        """
        ...

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from the pool."""
        ...

    def keys_values(self, first: int, end: int) -> KeysValues | None:
        """A copy of those of the positions `first` to `end`, exclusive.

        None where some are not there any more, were never written, or are not in this process.
        """
        ...

    def take_keys_values(self, count: int, numbers: KeysValues) -> None:
        """Appends `count` positions, 1 to `widest`, that a model of the same weights computed.

        The numbers may be flat, and of another format than the cache's. Raises with nothing
        taken: `BadParameters` for numbers that are not as many as the layers have, or not finite,
        `KvStrategyUnsupported` for a cache that takes none, `ContextExceeded`, `OutOfKvMemory`.
        """
        ...

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values.

        As if a history had been read, in the time of writing it down: for
        measuring and checking. Raises `ContextExceeded`, `OutOfKvMemory`, or
        `ValueError` when it is not empty.
        """
        ...

    def release(self) -> None:
        """Gives the memory back to the pool; the cache must not be used again.

        A second release does nothing.
        """
        ...
