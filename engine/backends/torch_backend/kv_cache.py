"""One session's keys and values as torch tensors, in slabs of the verifier's pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.dtypes import raw
from kakeya_fleet.engine.backends.torch_backend.group_store import GroupStore, Payload, TorchPool
from kakeya_fleet.engine.backends.torch_backend.masks import biases, cut, stacked
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.segment_products import (
    EvictedRead,
    FeedSegments,
    Masks,
)
from kakeya_fleet.engine.backends.torch_backend.vector_ring import VectorRing
from kakeya_fleet.engine.contracts.cache import CacheSpec, KvViews
from kakeya_fleet.engine.contracts.evicted_store import Evicted, EvictedKeysValues, EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder, Features
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.slot_views import seen_runs
from kakeya_fleet.engine.kv.slot_writes import Write, writes
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.restoration.matching import matching_encoder

FILL_POSITIONS = 1024
"""Random positions that are deposited at once."""


class TorchKvCache(SlabCache[GroupStore]):
    """Keys and values of all attention layers, and the states of recurrent ones."""

    _vectors: VectorRing | None = None

    @classmethod
    def allocate(
        cls,
        layout: KvLayout,
        spec: CacheSpec,
        dtype: torch.dtype,
        pool: TorchPool,
        new_states: Callable[[], dict[int, RecurrentState]],
        evicted: EvictedStore | None = None,
    ) -> TorchKvCache:
        """A new, empty cache; `new_states` makes the recurrent layers' by index.

        One of kind `restored` takes over `evicted`, which stays the caller's when
        this raises. Raises `OutOfKvMemory` with nothing taken, `BadParameters` or
        `KvStrategyUnsupported` for a `spec` that cannot be.
        """
        layout.check(spec)
        encoder = matching_encoder(spec, evicted)
        with ExitStack() as taken:
            stores: list[GroupStore] = []
            for group in layout.groups:
                placement = layout.placement(group, spec)
                grows = layout.grows(group, spec)
                stores.append(GroupStore.take(group, placement, dtype, pool, grows=grows))
                taken.callback(stores[-1].release)
            vectors: VectorRing | None = None
            ring = layout.vector_placement(spec)
            if ring is not None and encoder is not None:
                vectors = VectorRing.take(encoder, ring, pool)
                taken.callback(vectors.release)
            states: Slab[Payload] | None = None
            if layout.state_bytes:
                states = pool.take("states", layout.state_bytes, new_states)
            taken.pop_all()
        cache = cls(layout, spec, pool, stores, states, evicted)
        cache._vectors = vectors
        return cache

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors that hold this cache; shared ones count too."""
        keys = sum(
            store.tensor(segment).nbytes
            for store in self._stores
            for segment in range(len(store.slabs))
        )
        vectors = self._vectors.memory_bytes if self._vectors is not None else 0
        return keys + vectors + sum(state.memory_bytes for state in self.states.values())

    @property
    def slabs(self) -> Sequence[Slab[Payload]]:
        """What it holds of the pool."""
        return super().slabs if self._vectors is None else [*super().slabs, self._vectors.slab]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this cache is released now."""
        vectors = self._vectors.memory_bytes if self._vectors is not None else 0
        return super().freed_bytes + vectors

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes the context vectors that it keeps; None when it keeps none."""
        return self._vectors.encoder if self._vectors is not None else None

    @property
    def states(self) -> dict[int, RecurrentState]:
        """The recurrent layers' states by layer."""
        payload = self._states.payload if self._states is not None else {}
        if isinstance(payload, Tensor):
            raise TypeError("the states' slab holds states")
        return payload

    def fork(self, length: int) -> TorchKvCache:
        """A cache of the first `length` positions that shares what neither will change."""
        with ExitStack() as taken:
            vectors = self._vectors.fork() if self._vectors is not None else None
            if vectors is not None:
                taken.callback(vectors.release)
            evicted = self._evicted.fork(length) if self._evicted is not None else None
            if evicted is not None:
                taken.callback(evicted.release)
            stores, states = self._forked(length)
            taken.pop_all()
        forked = TorchKvCache(self._layout, self._spec, self._pool, stores, states, evicted)
        forked._vectors = vectors
        forked._is_fork_at(length, self._written)
        return forked

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from the pool."""
        return super().fork_bytes(length) + self._layout.vector_bytes(self._spec)

    def release(self) -> None:
        """Gives the memory back to the pool, and that of what was evicted."""
        super().release()
        if self._vectors is not None:
            self._vectors.release()
            self._vectors = None

    def update(self, layer: int, keys: Tensor, values: Tensor) -> KvViews[Tensor]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns views [kv_heads, m, head_dim] of those that a query among the n
        may attend to. Raises `ContextExceeded` with nothing written, and
        `ValueError` for shapes that are not the layer's.
        """
        store, index = self._place_of_update(layer, tuple(keys.shape), tuple(values.shape))
        count = keys.shape[1]
        # The first layer's update hands over what all layers have of those positions.
        self.evict(count)
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
            evicted_from=self._evicted_from(layer_group, end),
            stacked=stacked(store.placement, seen, layer_group.shape.groups, queries),
        )

    def _evicted_from(self, group: LayerGroup, end: int) -> int | None:
        """The next query's position when any before `end` sees evicted keys of `group`."""
        sees = self._evicted is not None and group.shape.sliding_window is None
        reach = end - 1 - self._spec.window
        return self._length if sees and reach >= self._spec.sink else None

    def write(
        self, layer: int, writes: dict[LayerGroup, list[Write]], keys: Tensor, values: Tensor
    ) -> None:
        """Stores keys and values [kv_heads, count, head_dim] of one layer."""
        store, index = self._place(layer)
        store.write(index, writes[store.group], keys, values)

    def read(self, layer: int, masks: dict[LayerGroup, Masks]) -> FeedSegments:
        """One layer's segments, without a copy, and where its evicted keys are."""
        store, index = self._place(layer)
        own = masks[store.group]
        segments = store.read(index, own)
        if own.evicted_from is None or self._evicted is None:
            return segments
        return replace(segments, evicted=EvictedRead(self._evicted, layer, own.evicted_from))

    def keep_vectors(self, features: Features) -> None:
        """Keeps the context vectors of the positions of the forward under way.

        `features` [n, taps, hidden_size] are its rows' hidden states at the
        encoder's layers. Called before `advance`.
        """
        if self._vectors is not None:
            self._vectors.write(self._length, features)

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
        if self._vectors is not None:
            self._vectors.fill(np.random.default_rng(seed))
        if self._evicted is not None:
            self._fill_evicted(self._evicted, count, np.random.default_rng(seed + 1))

    def _fill_evicted(self, store: EvictedStore, count: int, rng: np.random.Generator) -> None:
        """Deposits random numbers for the positions that a history of `count` has evicted."""
        end = count - self._spec.window
        for first in range(max(store.length, self._spec.sink), end, FILL_POSITIONS):
            store.deposit(first, self._random(min(FILL_POSITIONS, end - first), rng))

    def _random(self, count: int, rng: np.random.Generator) -> Evicted:
        if self._vectors is not None:
            width = self._vectors.encoder.spec.width
            return rng.standard_normal((count, width), np.float32)
        return EvictedKeysValues(
            tuple(
                raw(
                    torch.from_numpy(rng.standard_normal(store.shape_of(count), np.float32)).to(
                        store.dtype
                    )
                )
                for store in self._restored()
            )
        )

    def _leaving(self, first: int, end: int) -> Evicted:
        """What it holds of the positions `first` to `end`, exclusive."""
        if self._vectors is not None:
            return self._vectors.read(first, end)
        return EvictedKeysValues(
            tuple(raw(store.positions(first, end)) for store in self._restored())
        )

    def _restored(self) -> list[GroupStore]:
        """The stores of the layers that see all of the history."""
        return [store for store in self._stores if store.group.shape.sliding_window is None]

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
