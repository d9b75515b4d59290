"""Evicted positions shared by several stores, each of which keeps a range of them.

Attention is summed up over chunks of `engine.contracts.positions.CHUNK_KEYS` positions, in
ascending order. A range begins at a multiple of it. So the store of the first
range sums up its chunks, that of the second goes on from there with its own, and
so on: the same additions in the same order as in one store, and the same bits.
What is handed on is a `PartialAttention`, whatever the length of the ranges.
"""

from __future__ import annotations

from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedKeysValues,
    EvictedStore,
    PartialAttention,
)


class RangeStore(EvictedStore, Protocol):
    """A store of the evicted positions from `origin` on, until it is `complete`.

    Its first deposit is at `max(origin, sink)`. `length` counts from position 0 too;
    it is 0, or at most `origin`, at first. Attention is to the positions that it
    keeps: queries may see others that are kept elsewhere, below `origin`, and behind
    the range once it is complete.
    """

    @property
    def origin(self) -> int:
        """The first position of the range, a multiple of the chunk; 0 for what has all."""
        ...

    def reserve(self, end: int) -> None:
        """Takes the memory for all positions of the range below `end`.

        Raises `OutOfKvMemory` with nothing taken, `RestorerRefused` for positions
        that cannot be.
        """
        ...

    def complete(self) -> None:
        """Ends the range: later positions are kept elsewhere.

        `length` is a multiple of the chunk, else it is a `ValueError`. A second one
        does nothing.
        """
        ...

    def finish(self, carry: PartialAttention | None = None) -> PartialAttention:
        """The result of the oldest `begin`, summed up from `carry` on.

        `carry` is the attention of the same queries to all positions below `origin`:
        what the store of the range before found. A store from position 0 on takes none;
        one that is given none though it could begins with its own chunks.
        """
        ...

    def fork(self, length: int) -> RangeStore:
        """A store of the positions of the range below `length`.

        Complete when this is and all of it is kept.
        """
        ...


class KeepingStore(RangeStore, Protocol):
    """A range that lies in this process: what was deposited can be read."""

    def kept(self, layer: int, first: int, end: int) -> EvictedKeysValues:
        """A copy of one layer's keys and values, as a deposit of `EvictedShape.layer_shape`.

        As they were deposited. Raises `RestorerRefused` for a layer, for positions that are
        not kept, and for a part of a tile.
        """
        ...

    def fork(self, length: int) -> KeepingStore:
        """As `RangeStore.fork`."""
        ...
