"""What a cache keeps apart of positions that left its window, in memory of its own pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.memory.slab_pool import Slab


class OwnStore(EvictedStore, Protocol):
    """An evicted store whose bytes are its cache's, in slabs of the cache's pool."""

    @property
    def slabs(self) -> Sequence[Slab[Any]]:
        """What it holds of the pool."""
        ...

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when it is released now."""
        ...

    @property
    def slots(self) -> int:
        """The positions below this have their memory."""
        ...

    def growth_bytes(self, end: int) -> int:
        """Bytes that `reserve(end)` takes."""
        ...

    def reserve(self, end: int) -> None:
        """Takes the memory for the positions below `end`. Raises `OutOfKvMemory`, none taken."""
        ...

    def fork_bytes(self, length: int, end: int = 0) -> int:
        """Bytes that `fork(length)`, and `reserve(end)` of what it gives, take or reserve."""
        ...

    def store(self, group: LayerGroup) -> GroupStore[Any]:
        """The slabs of the layers of `group`, for kernels that read them by themselves."""
        ...

    def fork(self, length: int) -> OwnStore:
        """See `EvictedStore`."""
        ...
