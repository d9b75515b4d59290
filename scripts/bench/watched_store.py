"""An evicted store that lets its deposits and the latest queries be looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    EvictedStore,
)
from scripts.bench.wrapped_store import WrappedStore


class WatchedStore(WrappedStore):
    """Keeps the deposits, and the latest queries of each layer."""

    def __init__(self, store: EvictedStore, shape: EvictedShape) -> None:
        super().__init__(store, shape)
        self._deposits: list[Evicted] = []
        self.queries: dict[int, EvictedQueries] = {}
        """The latest of each layer."""

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions."""
        super().deposit(first, evicted)
        self._deposits.append(evicted)

    def begin(self, queries: EvictedQueries) -> None:
        """Starts attention."""
        super().begin(queries)
        self.queries[queries.layer] = queries

    @property
    def layers(self) -> tuple[int, ...]:
        """Those whose keys are asked for."""
        return tuple(sorted(self._shape.group_of))

    def vectors(self) -> NDArray[np.float32]:
        """The deposited context vectors [positions from `sink` on, width]."""
        found = [part for part in self._deposits if not isinstance(part, EvictedKeysValues)]
        return np.concatenate(found)

    def keys_values(self, layer: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """One layer's deposited keys and values [kv_heads, positions from `sink` on, head_dim]."""
        group = self._shape.group_of[layer]
        of_group, of_layer = self._shape.groups.index(group), group.layers.index(layer)
        found = [
            _floats(part.groups[of_group][of_layer])
            for part in self._deposits
            if isinstance(part, EvictedKeysValues)
        ]
        keys, values = np.concatenate(found, axis=2)
        return keys, values


def _floats(numbers: NDArray[np.float32] | NDArray[np.uint16]) -> NDArray[np.float32]:
    """Numbers of the cache as float32; bfloat16 is the upper half of one."""
    if numbers.dtype == np.uint16:
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float32, copy=False)
