"""Evicted stores of many sessions in one process: their memory is counted together."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.restoration.ranges import KeepingStore


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
    ) -> KeepingStore:
        """An empty store of the positions from `origin` on.

        With `projection` by the learned map in `map_folder`. Raises `OutOfKvMemory`,
        `RestorerRefused` for an origin between two chunks, and a `ModelUnusable` when
        the map cannot be loaded, or does not make this shape's keys and values.
        """
        ...
