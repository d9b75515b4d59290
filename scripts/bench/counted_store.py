"""An evicted store that counts what crosses to it and back, and is filled without a history."""

from __future__ import annotations

from typing import cast

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
    Raw,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec

BLOCK = 1024
"""Positions of random numbers that a filled store holds again and again."""


class CountedStore:
    """An `EvictedStore` around another one; see `engine.contracts.evicted_store`.

    `bytes_asked` are those of deposits and queries, `bytes_answered` those of
    partial outputs: the tensors alone, without frames.
    """

    def __init__(self, store: EvictedStore, shape: EvictedShape) -> None:
        self._store = store
        self._shape = shape
        self.bytes_asked = 0
        self.bytes_answered = 0

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._store.spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes context vectors."""
        return self._store.encoder

    @property
    def length(self) -> int:
        """The positions from `sink` to this, exclusive, are deposited."""
        return self._store.length

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them, as far as the other end has told."""
        return self._store.stored_bytes

    @property
    def bytes_crossed(self) -> int:
        """Both ways."""
        return self.bytes_asked + self.bytes_answered

    def prefill(self, end: int, seed: int) -> None:
        """Deposits random keys and values of the positions below `end`; a later
        `KvCache.fill` then finds them there. They repeat: what is attended to changes no times.
        """
        rng = np.random.default_rng(seed)
        block = [random_numbers(rng, dtype, sizes) for dtype, sizes in self._shape.arrays(BLOCK)]
        first = max(self._store.length, self._shape.sink)
        while first < end:
            count = min(BLOCK, end - first)
            cut = (np.ascontiguousarray(array[:, :, :, :count]) for array in block)
            self._store.deposit(first, EvictedKeysValues(tuple(cast(Raw, part) for part in cut)))
            first += count

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions."""
        if isinstance(evicted, EvictedKeysValues):
            self.bytes_asked += sum(array.nbytes for array in evicted.groups)
        else:
            self.bytes_asked += evicted.nbytes
        self._store.deposit(first, evicted)

    def begin(self, queries: EvictedQueries) -> None:
        """Starts attention."""
        self.bytes_asked += queries.queries.nbytes
        self._store.begin(queries)

    def finish(self) -> PartialAttention:
        """The oldest result."""
        found = self._store.finish()
        self.bytes_answered += found.output.nbytes + found.total.nbytes + found.maximum.nbytes
        return found

    def abandon(self) -> None:
        """Drops what nobody asked for."""
        self._store.abandon()

    def fork(self, length: int) -> EvictedStore:
        """A store that is not counted."""
        return self._store.fork(length)

    def release(self) -> None:
        """Gives the memory back."""
        self._store.release()


def random_numbers(
    rng: np.random.Generator, dtype: np.dtype[np.generic], sizes: tuple[int, ...]
) -> Raw:
    """Normal numbers in a cache's format; bfloat16 as the upper half of float32."""
    numbers = rng.standard_normal(sizes, np.float32)
    if dtype == np.float32:
        return numbers
    return cast(Raw, (numbers.view(np.uint32) >> 16).astype(np.uint16))
