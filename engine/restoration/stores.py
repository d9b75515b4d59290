"""Evicted stores of many sessions in one process: their memory is counted together."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.restoration.contract import EvictedStore
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerSpec


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
        self, shape: EvictedShape, spec: RestorerSpec, map_folder: Path | None = None
    ) -> EvictedStore:
        """An empty store; with `projection` by the learned map in `map_folder`.

        Raises `OutOfKvMemory`, and a `ModelUnusable` when the map cannot be
        loaded, or does not make this shape's keys and values.
        """
        ...
