"""Evicted stores of many sessions in one process: their memory is counted together."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.restoration.ranges import RangeStore


class KeptStore(RangeStore, Protocol):
    """A store that has what it keeps in its own memory."""

    def read(self, layer: int, first: int, end: int, into: Raw | None = None) -> Raw:
        """A copy of the keys and values [2, kv_heads, n, head_dim] of `first` to `end`, exclusive.

        In `into`, of that shape and the store's format, when it is given. Any thread
        may call, at any time: a position that is deposited stays as it is. Raises
        `RestorerRefused` for a layer that is not kept, `RestorerLost` once released,
        `ValueError` for positions that are not deposited here.
        """
        ...

    def fork(self, length: int) -> KeptStore:
        """A store of the positions below `length`."""
        ...


class EvictedStores(Protocol):
    """Makes the stores, and counts their bytes against a budget. Any thread may call."""

    @property
    def budget_bytes(self) -> int:
        """Bytes that the stores may take together."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes that they take now."""
        ...

    @property
    def arithmetic(self) -> str:
        """Names what computes: bits of two stores are only equal when these are."""
        ...

    def make(
        self,
        shape: EvictedShape,
        spec: RestorerSpec,
        map_folder: Path | None = None,
        *,
        origin: int = 0,
    ) -> KeptStore:
        """An empty store of the positions from `origin` on.

        With `projection` by the learned map in `map_folder`. Raises `OutOfKvMemory`,
        `RestorerRefused` for an origin between two chunks, and a `ModelUnusable` when
        the map cannot be loaded, or does not make this shape's keys and values.
        """
        ...
