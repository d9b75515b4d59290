"""What a cache hands over of positions that leave its window, and to whom."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedStore,
    Raw,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.positions import (
    Placement,
    evicted_end,
    round_up,
)
from kakeya_fleet.engine.contracts.raw_numbers import in_format
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.own_store import OwnStore
from kakeya_fleet.engine.kv.vector_ring import VectorRing
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool

DEPOSIT_MULTIPLE = 16
"""Positions below a multiple of it leave together."""
FILL_POSITIONS = 1024
"""Random positions that are deposited at once."""

Keys = Sequence[GroupStore[Any]]
"""A cache's stores of the layers that see all of the history, in their order."""


class Handover:
    """A cache's store of evicted positions, and the vectors of those that are still here."""

    def __init__(
        self,
        spec: CacheSpec,
        store: EvictedStore,
        vectors: VectorRing | None = None,
        own: OwnStore | None = None,
    ) -> None:
        """`own` is the store of a `packed` cache, whose memory is the cache's."""
        self.store = store
        self.vectors = vectors
        """None when keys and values leave."""
        self.own = own
        self._spec = spec
        self._codec = codec_named(spec.packed_by) if spec.packed_by else None

    @classmethod
    def take(
        cls,
        spec: CacheSpec,
        store: EvictedStore,
        encoder: FeatureEncoder | None,
        ring: Placement | None,
        pool: SlabPool[Any],
    ) -> Handover:
        """With an `encoder` it keeps context vectors at the slots of `ring`.

        Raises `OutOfKvMemory`; then `store` stays the caller's.
        """
        vectors = None
        if encoder is not None and ring is not None:
            vectors = VectorRing.take(encoder, ring, pool)
        return cls(spec, store, vectors)

    @classmethod
    def here(cls, spec: CacheSpec, own: OwnStore) -> Handover:
        """To a store of the cache's own; one that does not grow has all its memory at once.

        Raises `OutOfKvMemory`; then `own` stays the caller's.
        """
        made = cls(spec, own, own=own)
        if not spec.grows:
            made.grow(spec.capacity)
        return made

    @property
    def memory_bytes(self) -> int:
        """Bytes of the cache's own that it keeps."""
        return self._vector_bytes + (self.own.stored_bytes if self.own is not None else 0)

    @property
    def slabs(self) -> list[Slab[Any]]:
        """What it holds of the cache's pool."""
        vectors = [self.vectors.slab] if self.vectors is not None else []
        return [*vectors, *(self.own.slabs if self.own is not None else ())]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the cache's pool gets back when it is released now."""
        return self._vector_bytes + (self.own.freed_bytes if self.own is not None else 0)

    @property
    def reach(self) -> int:
        """A history of so many positions finds its memory; the cache's limit is another matter."""
        return sys.maxsize if self.own is None else self.own.slots + self._spec.window

    def growth_bytes(self, end: int) -> int:
        """Bytes that `grow(end)` takes."""
        packed = self._spec.handed_over_end(end)
        return self.own.growth_bytes(packed) if self.own is not None and packed else 0

    def grow(self, end: int) -> None:
        """Takes the memory for what a history of `end` positions hands over here.

        Raises `OutOfKvMemory` with nothing taken.
        """
        packed = self._spec.handed_over_end(end)
        if self.own is not None and packed:
            self.own.reserve(packed)

    def fork_bytes(self, length: int) -> int:
        """Bytes that a fork takes or reserves in the cache's pool."""
        if self.own is None:
            return self._vector_bytes
        capacity = 0 if self._spec.grows else self._spec.capacity
        return self.own.fork_bytes(length, self._spec.handed_over_end(capacity))

    def due(self, length: int, count: int) -> range:
        """The positions that leave before the next `count` queries of a history of `length`.

        Those that the last of them has behind its window, and up to
        `DEPOSIT_MULTIPLE` - 1 more, so that not every step of one token has a
        deposit: all before `length` are final by then. Whole tiles where they are packed.
        """
        first = max(self.store.length, self._spec.sink)
        if self._spec.tile > 1:
            last = evicted_end(length + count - 1, self._spec.window, self._spec.tile)
            return range(first, max(first, last))
        end = length + count - self._spec.window
        return range(first, min(length, round_up(end, DEPOSIT_MULTIPLE)) if first < end else first)

    def deposit(self, positions: range, keys: Keys) -> None:
        """Hands these over. Raises what the store raises."""
        leaving: Evicted
        if self.vectors is not None:
            leaving = self.vectors.read(positions.start, positions.stop)
        else:
            leaving = EvictedKeysValues(
                tuple(self._leaving(store, positions.start, positions.stop) for store in keys)
            )
        self.store.deposit(positions.start, leaving)

    def fill(self, count: int, keys: Keys, rng: np.random.Generator) -> None:
        """Random vectors here, and random numbers for what a history of `count` has evicted."""
        if self.vectors is not None:
            self.vectors.fill(rng)
        end = max(0, count - self._spec.window) // self._spec.tile * self._spec.tile
        for first in range(max(self.store.length, self._spec.sink), end, FILL_POSITIONS):
            self.store.deposit(first, self._random(min(FILL_POSITIONS, end - first), keys, rng))

    def fork(self, length: int) -> Handover:
        """Copies for a cache of the first `length` positions. Raises `OutOfKvMemory`."""
        if self.own is not None:
            own = self.own.fork(length)
            try:
                return Handover.here(self._spec, own)
            except BaseException:
                own.release()
                raise
        vectors = self.vectors.fork() if self.vectors is not None else None
        try:
            return Handover(self._spec, self.store.fork(length), vectors)
        except BaseException:
            if vectors is not None:
                vectors.release()
            raise

    def release(self) -> None:
        """Gives all memory back, also that of what was evicted."""
        self.store.release()
        if self.vectors is not None:
            self.vectors.release()
            self.vectors = None

    @property
    def _vector_bytes(self) -> int:
        return self.vectors.memory_bytes if self.vectors is not None else 0

    def _random(self, count: int, keys: Keys, rng: np.random.Generator) -> Evicted:
        if self.vectors is not None:
            width = self.vectors.encoder.spec.width
            return rng.standard_normal((count, width), np.float32)
        return EvictedKeysValues(tuple(self._filling(store, count, rng) for store in keys))

    def _leaving(self, store: GroupStore[Any], first: int, end: int) -> Raw:
        """The numbers of positions, packed where the session has a codec."""
        codec = self._codec
        if codec is None:
            return store.positions(first, end)
        try:
            return store.packed_positions(codec, first, end)
        except CodecRefused as refused:
            raise RestorerRefused(
                f"what leaves the window cannot be packed: {refused}"
            ) from refused

    def _filling(self, store: GroupStore[Any], count: int, rng: np.random.Generator) -> Raw:
        numbers = rng.standard_normal(store.shape_of(count), np.float32)
        raw = in_format(numbers, store.dtype)
        return raw if self._codec is None else store.packed(self._codec, raw)
