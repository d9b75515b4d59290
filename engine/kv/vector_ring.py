"""Context vectors of the positions that a cache has not evicted yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.features import ContextVectors, FeatureEncoder, Features
from kakeya_fleet.engine.contracts.kv_layout import VECTOR_BYTES
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


@dataclass(slots=True)
class Vectors:
    """Vectors [slots, width], in NumPy: they come from their encoder, and go to a store."""

    values: NDArray[np.float32]

    def clear(self) -> None:
        """Makes all numbers 0."""
        self.values[:] = 0


class VectorRing:
    """One vector a slot, at the slots of the keys that it stands for.

    So a vector is there for as long as the cache's keys are: see
    `engine.kv.slab_cache.SlabCache.evict`.
    """

    def __init__(
        self,
        encoder: FeatureEncoder,
        placement: Placement,
        pool: SlabPool[Any],
        slab: Slab[Vectors],
    ) -> None:
        self.encoder = encoder
        self.slab = slab
        self._placement = placement
        self._pool = pool

    @classmethod
    def take(cls, encoder: FeatureEncoder, placement: Placement, pool: SlabPool[Any]) -> VectorRing:
        """An empty ring. Raises `OutOfKvMemory`."""
        shape = (placement.slots, encoder.spec.width)
        nbytes = shape[0] * shape[1] * VECTOR_BYTES
        slab: Slab[Vectors] = pool.take(
            ("vectors", shape), nbytes, lambda: Vectors(np.zeros(shape, np.float32))
        )
        return cls(encoder, placement, pool, slab)

    @property
    def memory_bytes(self) -> int:
        """Bytes of its vectors."""
        return self._values.nbytes

    def write(self, first: int, features: Features) -> None:
        """Keeps the vectors of positions `first` onwards, from hidden states [n, taps, hidden]."""
        self._values[self._slots(first, first + len(features))] = self.encoder.encode(features)

    def read(self, first: int, end: int) -> ContextVectors:
        """Copies of the vectors of `first` to `end`, exclusive."""
        return self._values[self._slots(first, end)]

    def fill(self, rng: np.random.Generator) -> None:
        """Random vectors in all slots."""
        self._values[:] = rng.standard_normal(self._values.shape, np.float32)

    def fork(self) -> VectorRing:
        """A copy. Raises `OutOfKvMemory`."""
        copy = VectorRing.take(self.encoder, self._placement, self._pool)
        copy.slab.payload.values[:] = self._values
        return copy

    def release(self) -> None:
        """Gives the memory back."""
        self._pool.give_back(self.slab)

    @property
    def _values(self) -> NDArray[np.float32]:
        return self.slab.payload.values

    def _slots(self, first: int, end: int) -> list[int]:
        return [self._placement.slot(position) for position in range(first, end)]
