"""The evicted stores of a node's archives, on torch."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from kakeya_fleet.engine.backends.torch_backend.arithmetic import torch_arithmetic
from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.projecting import projecting_store
from kakeya_fleet.engine.backends.torch_backend.projection import Projection, load_projection
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.memory.slab_pool import SlabPool

ARITHMETIC_VERSION = 3
"""Of the stores' own products and sums: raised with any change of what they compute, by one bit."""


class TorchArchiveStores:
    """Stores that share one pool's budget, and the maps that several sessions use."""

    def __init__(self, budget_bytes: int = 0, pool: SlabPool[Any] | None = None) -> None:
        """A budget of their own, or `pool`, whose budget others share."""
        self._pool = pool if pool is not None else kv_pool(budget_bytes)
        self._lock = threading.Lock()
        self._maps: dict[str, Projection] = {}
        # The library is made here if need be, where a caller expects to wait.
        products = "torch's" if library() is None else "compiled"
        self._arithmetic = f"evicted {ARITHMETIC_VERSION}, {products}, {torch_arithmetic()}"

    @property
    def budget_bytes(self) -> int:
        """Bytes that the stores may take together."""
        budget = self._pool.budget_bytes
        return budget if budget is not None else sys.maxsize

    @property
    def used_bytes(self) -> int:
        """Bytes that they take now."""
        return self._pool.used_bytes

    @property
    def arithmetic(self) -> str:
        """The stores' own version, whose products, torch's version, the instructions used."""
        return self._arithmetic

    def make(
        self,
        shape: EvictedShape,
        spec: RestorerSpec,
        map_folder: Path | None = None,
        *,
        origin: int = 0,
    ) -> TorchEvictedStore:
        """An empty store; see `engine.restoration.stores.EvictedStores.make` for errors."""
        if spec.kind is not RestorerKind.PROJECTION:
            return TorchEvictedStore(shape, spec, self._pool, origin=origin)
        if map_folder is None:
            raise ModelNotFound("a projection needs its learned map", restorer=spec.model_id)
        projection = self._map(spec.digest, map_folder)
        return projecting_store(shape, spec, self._pool, projection, origin=origin)

    def _map(self, digest: str, folder: Path) -> Projection:
        with self._lock:
            if digest not in self._maps:
                self._maps[digest] = load_projection(folder)
            return self._maps[digest]
