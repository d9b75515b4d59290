"""Context vectors of the positions that a cache has not evicted yet."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.group_store import Payload, TorchPool
from kakeya_fleet.engine.contracts.features import ContextVectors, FeatureEncoder, Features
from kakeya_fleet.engine.contracts.kv_layout import VECTOR_BYTES
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.memory.slab_pool import Slab


class VectorRing:
    """One vector a slot, at the slots of the keys that it stands for.

    So a vector is there for as long as the cache's keys are: see
    `engine.kv.slab_cache.SlabCache.evict`.
    """

    def __init__(
        self, encoder: FeatureEncoder, placement: Placement, pool: TorchPool, slab: Slab[Payload]
    ) -> None:
        self.encoder = encoder
        self.slab = slab
        self._placement = placement
        self._pool = pool

    @classmethod
    def take(cls, encoder: FeatureEncoder, placement: Placement, pool: TorchPool) -> VectorRing:
        """An empty ring. Raises `OutOfKvMemory`."""
        shape = (placement.slots, encoder.spec.width)

        def make() -> Payload:
            with torch.inference_mode(mode=False):
                return torch.zeros(shape)

        nbytes = shape[0] * shape[1] * VECTOR_BYTES
        slab = pool.take(("vectors", shape), nbytes, make)
        return cls(encoder, placement, pool, slab)

    @property
    def memory_bytes(self) -> int:
        """Bytes of its tensor."""
        return self.tensor.nbytes

    def write(self, first: int, features: Features) -> None:
        """Keeps the vectors of positions `first` onwards, from hidden states [n, taps, hidden]."""
        slots = [self._placement.slot(first + row) for row in range(len(features))]
        self.tensor.numpy()[slots] = self.encoder.encode(features)

    def read(self, first: int, end: int) -> ContextVectors:
        """Copies of the vectors of `first` to `end`, exclusive."""
        slots = [self._placement.slot(position) for position in range(first, end)]
        found: ContextVectors = self.tensor.numpy()[slots]
        return found

    def fill(self, rng: np.random.Generator) -> None:
        """Random vectors in all slots."""
        self.tensor.numpy()[:] = rng.standard_normal(self.tensor.shape, np.float32)

    def fork(self) -> VectorRing:
        """A copy. Raises `OutOfKvMemory`."""
        copy = VectorRing.take(self.encoder, self._placement, self._pool)
        copy.tensor.copy_(self.tensor)
        return copy

    def release(self) -> None:
        """Gives the memory back."""
        self._pool.give_back(self.slab)

    @property
    def tensor(self) -> Tensor:
        """The vectors [slots, width]."""
        payload = self.slab.payload
        if not isinstance(payload, Tensor):
            raise TypeError("a ring's slab holds a tensor")
        return payload
