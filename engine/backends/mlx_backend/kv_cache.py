"""One session's keys and values as MLX arrays, in slabs of the verifier's pool."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.mlx_backend.attention import EvictedRead, FeedMasks, FeedSegments
from kakeya_fleet.engine.backends.mlx_backend.dtypes import raw
from kakeya_fleet.engine.backends.mlx_backend.group_store import (
    GroupStore,
    MlxPool,
    Payload,
    States,
)
from kakeya_fleet.engine.backends.mlx_backend.masks import biases
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentRule, RecurrentState
from kakeya_fleet.engine.backends.mlx_backend.vector_ring import VectorRing
from kakeya_fleet.engine.contracts.cache import CacheSpec, KvViews
from kakeya_fleet.engine.contracts.evicted_store import Evicted, EvictedKeysValues, EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder, Features
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.slot_views import seen_runs
from kakeya_fleet.engine.kv.slot_writes import Write
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.restoration.matching import matching_encoder

FILL_POSITIONS = 1024
"""Random positions that are deposited at once."""


class MlxKvCache(SlabCache[GroupStore]):
    """Keys and values of all attention layers, and the states of recurrent ones."""

    _vectors: VectorRing | None = None

    @classmethod
    def allocate(
        cls,
        layout: KvLayout,
        spec: CacheSpec,
        dtype: mx.Dtype,
        pool: MlxPool,
        rules: dict[int, RecurrentRule],
        evicted: EvictedStore | None = None,
    ) -> MlxKvCache:
        """A new, empty cache; `rules` are the recurrent layers' by index.

        One of kind `restored` takes over `evicted`, which stays the caller's when
        this raises. Raises `OutOfKvMemory` with nothing taken, `BadParameters` or
        `KvStrategyUnsupported` for a `spec` that cannot be.
        """
        layout.check(spec)
        encoder = matching_encoder(spec, evicted)
        with ExitStack() as taken:
            stores: list[GroupStore] = []
            for group in layout.groups:
                placement, grows = layout.placement(group, spec), layout.grows(group, spec)
                store = GroupStore(group, placement, dtype, pool, grows=grows)
                store.take()
                taken.callback(store.release)
                stores.append(store)
            vectors: VectorRing | None = None
            ring = layout.vector_placement(spec)
            if ring is not None and encoder is not None:
                vectors = VectorRing.take(encoder, ring, pool)
                taken.callback(vectors.release)
            states: Slab[Payload] | None = None
            if rules:
                states = pool.take("states", layout.state_bytes, lambda: _new_states(rules))
            taken.pop_all()
        cache = cls(layout, spec, pool, stores, states, evicted)
        cache._vectors = vectors
        return cache

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that hold this cache; shared ones count too."""
        vectors = self._vectors.memory_bytes if self._vectors is not None else 0
        return vectors + sum(array.nbytes for array in self.arrays)

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
        if self._states is None:
            return {}
        payload = self._states.payload
        if not isinstance(payload, States):
            raise TypeError("the states' slab holds states")
        return payload.by_layer

    def fork(self, length: int) -> MlxKvCache:
        """A cache of the first `length` positions that shares all until it is written."""
        with ExitStack() as taken:
            vectors = self._vectors.fork() if self._vectors is not None else None
            if vectors is not None:
                taken.callback(vectors.release)
            evicted = self._evicted.fork(length) if self._evicted is not None else None
            if evicted is not None:
                taken.callback(evicted.release)
            stores, states = self._forked(length)
            taken.pop_all()
        forked = MlxKvCache(self._layout, self._spec, self._pool, stores, states, evicted)
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

    def update(self, layer: int, keys: mx.array, values: mx.array) -> KvViews[mx.array]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns those [kv_heads, m, head_dim] that a query among the n may attend
        to. Raises `ContextExceeded` with nothing written, and `ValueError` for
        shapes that are not the layer's.
        """
        store, index = self._place_of_update(layer, tuple(keys.shape), tuple(values.shape))
        count = keys.shape[1]
        # The first layer's update hands over what all layers have of those positions.
        self.evict(count)
        store.write(index, self.prepare(count)[store.group], keys, values)
        mx.eval(self.arrays)
        return self._views(store, index, count)

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [array for slab in super().slabs for array in slab.payload.arrays]

    def masks(self, count: int, rows: int) -> dict[LayerGroup, FeedMasks]:
        """What the next `count` queries see, padded to `rows`."""
        end = self._length + count
        # Padding rows repeat the last position, so that they see something.
        queries = np.minimum(np.arange(self._length, self._length + rows), end - 1)
        found = {}
        for store in self._stores:
            seen = biases(store.placement, queries, end, store.group.shape.groups)
            used = (range(part.start, min(part.stop, len(seen))) for part in store.chunks)
            found[store.group] = FeedMasks(tuple(part for part in used if part), seen)
        return found

    def write(
        self, layer: int, writes: dict[LayerGroup, list[Write]], keys: mx.array, values: mx.array
    ) -> None:
        """Stores keys and values [kv_heads, count, head_dim] of one layer."""
        store, index = self._place(layer)
        store.write(index, writes[store.group], keys, values)

    def read(self, layer: int, masks: dict[LayerGroup, FeedMasks], count: int) -> FeedSegments:
        """One layer's segments, and where the `count` tokens' evicted keys are."""
        store, index = self._place(layer)
        segments = store.read(index, masks[store.group])
        if self._evicted is None or not self._sees_evicted(store.group, count):
            return segments
        return replace(segments, evicted=EvictedRead(self._evicted, layer, self._length, count))

    def keep_vectors(self, features: Features) -> None:
        """Keeps the context vectors of the positions of the forward under way.

        `features` [n, taps, hidden_size] are its rows' hidden states at the
        encoder's layers. Called before `advance`.
        """
        if self._vectors is not None:
            self._vectors.write(self._length, features)

    def _sees_evicted(self, group: LayerGroup, count: int) -> bool:
        """Whether any of the next `count` queries sees evicted keys of `group`."""
        reach = self._length + count - 1 - self._spec.window
        return group.shape.sliding_window is None and reach >= self._spec.sink

    def _fill_stores(self, count: int, seed: int) -> None:
        for index, store in enumerate(self._stores):
            store.fill(count, mx.random.key(seed + index))
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
                raw(mx.array(rng.standard_normal(store.shape_of(count), np.float32), store.dtype))
                for store in self._restored()
            )
        )

    def _leaving(self, first: int, end: int) -> Evicted:
        """What it holds of the positions `first` to `end`, exclusive."""
        if self._vectors is not None:
            return self._vectors.read(first, end)
        return EvictedKeysValues(tuple(store.positions(first, end) for store in self._restored()))

    def _restored(self) -> list[GroupStore]:
        """The stores of the layers that see all of the history."""
        return [store for store in self._stores if store.group.shape.sliding_window is None]

    def _forked_states(self, kept: int) -> Payload:
        states = States({layer: state.fork(kept) for layer, state in self.states.items()})
        mx.eval(states.arrays)
        return states

    def _views(self, store: GroupStore, index: int, count: int) -> KvViews[mx.array]:
        runs = seen_runs(store.placement, self._length, self._length + count)
        parts = [(store.segment(run.segment), slice(run.first, run.last)) for run in runs]
        return KvViews(
            tuple(segment.keys[index][:, part] for segment, part in parts),
            tuple(segment.values[index][:, part] for segment, part in parts),
            tuple(run.positions for run in runs),
        )


def _new_states(rules: dict[int, RecurrentRule]) -> Payload:
    states = States({layer: RecurrentState(rule) for layer, rule in rules.items()})
    mx.eval(states.arrays)
    return states
