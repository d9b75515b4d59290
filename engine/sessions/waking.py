"""What memory a session that rests takes once it goes on: as much as before, or less, packed.

It computes its history again either way, so that packing costs it no time, where another's rest
would cost that one its own. So who may be packed is, unless all of its memory is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.memory.slab_pool import SlabPool


@dataclass(frozen=True, slots=True)
class Room:
    """Where a session finds memory.

    `is_free(nbytes)` without anybody's rest; `make(nbytes)` sees to it that they are, or raises
    `OutOfKvMemory`. In the verifier's thread.
    """

    is_free: Callable[[int], bool]
    make: Callable[[int], None]

    @classmethod
    def of_pool(cls, pool: SlabPool[Any]) -> Room:
        """All of a pool."""

        def is_free(nbytes: int) -> bool:
            free = pool.free_bytes
            return free is None or nbytes <= free

        return cls(is_free, pool.make_room)


class Waking:
    """Of one session."""

    def __init__(self, verifier: Verifier) -> None:
        """In all of the verifier's pool, until another `room` is given."""
        self._verifier = verifier
        self.room = Room.of_pool(verifier.pool)
        self.smaller: CacheSpec | None = None
        """What it may be packed to where its memory is not free; None where it may not."""

    def make_room(self, spec: CacheSpec, length: int) -> CacheSpec:
        """What to allocate in place of `spec` for a history of `length`; there is room for it.

        All of it at once: what is computed before the last chunk finds no room is lost time.
        Raises `OutOfKvMemory`.
        """
        if self.smaller is not None and not self.room.is_free(self._bytes_needed(spec, length)):
            spec = self.smaller
        self.room.make(self._bytes_needed(spec, length))
        return spec

    def _bytes_needed(self, spec: CacheSpec, length: int) -> int:
        if spec.grows:
            end = min(spec.capacity, max(1, length))
            spec = replace(spec, grows=False, capacity=end)
        return self._verifier.bytes_needed(spec)
