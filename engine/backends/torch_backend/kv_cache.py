"""One session's keys and values as torch tensors, in slabs of the verifier's pool."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.backends.torch_backend.attention import FeedSegments, Masks
from engine.backends.torch_backend.group_store import GroupStore, Payload, TorchPool
from engine.backends.torch_backend.masks import biases, cut
from engine.backends.torch_backend.recurrent import RecurrentState
from engine.cache import CacheSpec, KvViews
from engine.kv_layout import KvLayout, LayerGroup
from engine.slab_cache import SlabCache
from engine.slab_pool import Slab
from engine.slot_views import seen_runs
from engine.slot_writes import Write, writes


class TorchKvCache(SlabCache[GroupStore]):
    """Keys and values of all attention layers, and the states of recurrent ones."""

    @classmethod
    def allocate(
        cls,
        layout: KvLayout,
        spec: CacheSpec,
        dtype: torch.dtype,
        pool: TorchPool,
        new_states: Callable[[], dict[int, RecurrentState]],
    ) -> TorchKvCache:
        """A new, empty cache; `new_states` makes the recurrent layers' by index.

        Raises `OutOfKvMemory` with nothing taken, `BadParameters` or
        `KvStrategyUnsupported` for a `spec` that cannot be.
        """
        layout.check(spec)
        stores: list[GroupStore] = []
        states: Slab[Payload] | None = None
        try:
            for group in layout.groups:
                placement = layout.placement(group, spec)
                stores.append(GroupStore.take(group, placement, dtype, pool))
            if layout.state_bytes:
                states = pool.take("states", layout.state_bytes, new_states)
        except BaseException:
            for store in stores:
                store.release()
            raise
        return cls(layout, spec, pool, stores, states)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors that hold this cache; shared ones count too."""
        keys = sum(
            store.tensor(segment).nbytes
            for store in self._stores
            for segment in range(len(store.slabs))
        )
        return keys + sum(state.memory_bytes for state in self.states.values())

    @property
    def states(self) -> dict[int, RecurrentState]:
        """The recurrent layers' states by layer."""
        payload = self._states.payload if self._states is not None else {}
        if isinstance(payload, Tensor):
            raise TypeError("the states' slab holds states")
        return payload

    def fork(self, length: int) -> TorchKvCache:
        """A cache of the first `length` positions that shares what neither will change."""
        forked = TorchKvCache(self._layout, self._spec, self._pool, *self._forked(length))
        forked._is_fork_at(length, self._written)
        return forked

    def update(self, layer: int, keys: Tensor, values: Tensor) -> KvViews[Tensor]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns views [kv_heads, m, head_dim] of those that a query among the n
        may attend to. Raises `ContextExceeded` with nothing written, and
        `ValueError` for shapes that are not the layer's.
        """
        store, index = self._place_of_update(layer, tuple(keys.shape), tuple(values.shape))
        count = keys.shape[1]
        store.write(index, self.prepare(count)[store.group], keys, values)
        return self._views(store, index, self._length, self._length + count)

    def masks(self, layer_group: LayerGroup, first_row: int, count: int, queries: int) -> Masks:
        """What the next `count` queries see, for products of `queries` of them."""
        store = next(store for store in self._stores if store.group == layer_group)
        end = self._length + count
        # Rows beyond the real ones repeat the last position, so that they see something.
        positions = np.minimum(np.arange(self._length, self._length + queries), end - 1)
        seen = biases(store.placement, positions, end)
        return Masks(
            first_row=first_row,
            count=count,
            queries=queries,
            chunks=cut(store.chunks, len(seen)),
            biases=seen,
        )

    def write(
        self, layer: int, writes: dict[LayerGroup, list[Write]], keys: Tensor, values: Tensor
    ) -> None:
        """Stores keys and values [kv_heads, count, head_dim] of one layer."""
        store, index = self._place(layer)
        store.write(index, writes[store.group], keys, values)

    def read(self, layer: int, masks: dict[LayerGroup, Masks]) -> FeedSegments:
        """One layer's segments, without a copy."""
        store, index = self._place(layer)
        return store.read(index, masks[store.group])

    def held(self, layer: int, position: int) -> tuple[Tensor, Tensor]:
        """Copies of the key and value [kv_heads, head_dim] in the slot of `position`."""
        store, index = self._place(layer)
        (place,) = writes(store.placement, position, 1)
        tensor = store.tensor(place.segment)[index, :, :, place.slot]
        return tensor[0].clone(), tensor[1].clone()

    def _fill_stores(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for store in self._stores:
            store.fill(count, generator)

    def _forked_states(self, kept: int) -> Payload:
        forked = {layer: state.fork() for layer, state in self.states.items()}
        for state in forked.values():
            state.truncate(kept)
            state.settle()
        return forked

    def _views(self, store: GroupStore, index: int, start: int, end: int) -> KvViews[Tensor]:
        runs = seen_runs(store.placement, start, end)
        parts = [store.tensor(run.segment)[index, :, :, run.first : run.last] for run in runs]
        return KvViews(
            tuple(part[0] for part in parts),
            tuple(part[1] for part in parts),
            tuple(run.positions for run in runs),
        )
