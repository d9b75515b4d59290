"""Evicted keys and values read back from where they lie, to be attended to here.

The other way round from `engine.contracts.evicted_store`: the store keeps, the
verifier attends. What is read is transient: a chunk of one layer at a time, and
as much more on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedQueries,
    EvictedStore,
    PartialAttention,
    Raw,
)


@dataclass(frozen=True, slots=True)
class KvRead:
    """Positions `first` to `end`, exclusive, of a layer; of one chunk."""

    layer: int
    first: int
    end: int


class KeysValuesSource(Protocol):
    """Reads what one store keeps. Used by the verifier's thread alone.

    Every method but `close` raises `RestorerLost` when nothing can be read any
    more.
    """

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep it, as they were told last; 0 before."""
        ...

    def request(self, reads: Sequence[KvRead]) -> None:
        """Asks for one or more chunks. Does not wait."""
        ...

    def next_chunk(self) -> tuple[int, Raw]:
        """A first position, and the keys and values [2, kv_heads, n, head_dim] from it on.

        What was requested comes in the order of the requests, each in pieces in
        ascending order. Waits no longer than a deadline.
        """
        ...

    def close(self) -> None:
        """Ends it. Never raises; a second one does nothing."""
        ...


OpenSource = Callable[[EvictedStore], KeysValuesSource]
"""Opens what reads back what a store keeps; may wait. Raises `RestorerLost`."""


class ChunkFold(Protocol):
    """Attention of the queries of one block to keys and values that come chunk by chunk."""

    def put(self, first: int, keys_values: Raw) -> None:
        """Takes a copy of [2, kv_heads, n, head_dim] at positions `first` onwards of a chunk."""
        ...

    def fold(self) -> None:
        """Attends to the chunk that was put, which is complete as far as queries see it."""
        ...

    def partial(self) -> PartialAttention:
        """Attention to all chunks, in ascending order."""
        ...


class ChunkAttention(Protocol):
    """Computes for one store, a block at a time."""

    def start(self, asked: EvictedQueries) -> ChunkFold:
        """Begins with the queries of a block."""
        ...

    def rest(self) -> None:
        """Gives back the memory of a chunk, until the next `put`."""
        ...


NewAttention = Callable[[EvictedShape], ChunkAttention]
"""What computes for a store of that shape."""
