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
from scripts.bench.wrapped_store import WrappedStore

BLOCK = 1024
"""Positions of random numbers that a filled store holds again and again."""


class CountedStore(WrappedStore):
    """`bytes_asked` are those of deposits and queries, of which `bytes_deposited` is a part,
    `bytes_answered` those of partial outputs: the tensors alone, without frames.
    """

    def __init__(self, store: EvictedStore, shape: EvictedShape) -> None:
        super().__init__(store, shape)
        self.bytes_asked = 0
        self.bytes_deposited = 0
        self.bytes_answered = 0

    @property
    def deposited_bytes_a_position(self) -> float:
        """Of the positions that were deposited."""
        return self.bytes_deposited / max(1, self.length - self._shape.sink)

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
            byte_count = sum(array.nbytes for array in evicted.groups)
        else:
            byte_count = evicted.nbytes
        self.bytes_deposited += byte_count
        self.bytes_asked += byte_count
        super().deposit(first, evicted)

    def begin(self, queries: EvictedQueries) -> None:
        """Starts attention."""
        self.bytes_asked += queries.queries.nbytes
        super().begin(queries)

    def finish(self) -> PartialAttention:
        """The oldest result."""
        found = super().finish()
        self.bytes_answered += found.output.nbytes + found.total.nbytes + found.maximum.nbytes
        return found


def random_numbers(
    rng: np.random.Generator, dtype: np.dtype[np.generic], sizes: tuple[int, ...]
) -> Raw:
    """Normal numbers in a cache's format; bfloat16 as the upper half of float32."""
    numbers = rng.standard_normal(sizes, np.float32)
    if dtype == np.float32:
        return numbers
    return cast(Raw, (numbers.view(np.uint32) >> 16).astype(np.uint16))
