"""The memory that a session may take."""

from __future__ import annotations

from dataclasses import replace

from kakeya_fleet.engine.contracts.cache import CacheKind, KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.invariants import ByteBounds, grown_bounds


class SessionMemory:
    """Of one session's cache. Used by one thread at a time."""

    def __init__(self, verifier: Verifier, cache: KvCache) -> None:
        """`cache` is new, or a fork of another's."""
        self._verifier = verifier
        self._allocated_bytes = cache.memory_bytes
        self._reached = cache.length

    def make_room(self, cache: KvCache, count: int) -> None:
        """Sees to it that the cache can grow by `count` positions.

        What others hold and do not use may be evicted for it. Raises `OutOfKvMemory`.
        """
        nbytes = cache.growth_bytes(count)
        if nbytes:
            self._verifier.pool.make_room(nbytes)

    def take(self, cache: KvCache, count: int) -> None:
        """Takes the memory of the next `count` positions, which has been made free.

        Raises `OutOfKvMemory`.
        """
        cache.grow(count)
        self._reached = max(self._reached, cache.length + count)

    def feeds(self, cache: KvCache, count: int) -> None:
        """`count` positions are about to be computed."""
        self._reached = max(self._reached, cache.length + count)

    def bounds(self, cache: KvCache) -> ByteBounds:
        """What the cache's tensors may take."""
        if cache.spec.kind is CacheKind.PACKED:
            return self._packed_bounds(cache)
        if cache.spec.grows:
            return grown_bounds(self._verifier.info, cache.length, self._reached)
        return ByteBounds(self._allocated_bytes, self._allocated_bytes)

    def _packed_bounds(self, cache: KvCache) -> ByteBounds:
        """Those of a cache that has room for what there is, and at most for what there was.

        A fork may have tiles of positions that it has in its window, too.
        """
        spec = cache.spec
        ends = (
            (cache.length, self._reached + spec.window + spec.tile)
            if spec.grows
            else (spec.capacity,)
        )
        least, most = (
            self._verifier.bytes_needed(
                replace(spec, grows=False, capacity=min(max(1, end), spec.capacity))
            )
            for end in (ends[0], ends[-1])
        )
        return ByteBounds(least, most)
