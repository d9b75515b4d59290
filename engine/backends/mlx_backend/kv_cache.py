"""One session's keys and values as MLX arrays, in slabs of the verifier's pool."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from engine.backends.mlx_backend.attention import FeedMasks, FeedSegments
from engine.backends.mlx_backend.group_store import GroupStore, MlxPool, Payload, States
from engine.backends.mlx_backend.masks import biases
from engine.backends.mlx_backend.recurrent import RecurrentRule, RecurrentState
from engine.cache import CacheKind, CacheSpec, KvViews
from engine.errors import KvStrategyUnsupported
from engine.kv_layout import KvLayout, LayerGroup
from engine.slab_cache import SlabCache
from engine.slab_pool import Slab
from engine.slot_views import seen_runs
from engine.slot_writes import Write


def check_served(spec: CacheSpec) -> None:
    """Raises `KvStrategyUnsupported` for a kind of cache that this back end does not have."""
    if spec.kind is CacheKind.RESTORED:
        raise not_restored(spec)


def not_restored(spec: CacheSpec) -> KvStrategyUnsupported:
    """Says that there is no restored cache here."""
    return KvStrategyUnsupported(
        "restored caches are served by the torch back end only; use full or sink_window",
        kind=str(spec.kind),
        backend="mlx",
    )


class MlxKvCache(SlabCache[GroupStore]):
    """Keys and values of all attention layers, and the states of recurrent ones."""

    @classmethod
    def allocate(
        cls,
        layout: KvLayout,
        spec: CacheSpec,
        dtype: mx.Dtype,
        pool: MlxPool,
        rules: dict[int, RecurrentRule],
    ) -> MlxKvCache:
        """A new, empty cache; `rules` are the recurrent layers' by index.

        Raises `OutOfKvMemory` with nothing taken, `BadParameters` or
        `KvStrategyUnsupported` for a `spec` that cannot be.
        """
        layout.check(spec)
        check_served(spec)
        stores: list[GroupStore] = []
        states: Slab[Payload] | None = None
        try:
            for group in layout.groups:
                stores.append(GroupStore(group, layout.placement(group, spec), dtype, pool))
                stores[-1].take()
            if rules:
                states = pool.take("states", layout.state_bytes, lambda: _new_states(rules))
        except BaseException:
            for store in stores:
                store.release()
            raise
        return cls(layout, spec, pool, stores, states)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that hold this cache; shared ones count too."""
        return sum(array.nbytes for slab in self.slabs for array in slab.payload.arrays)

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
        forked = MlxKvCache(self._layout, self._spec, self._pool, *self._forked(length))
        forked._is_fork_at(length, self._written)
        return forked

    def update(self, layer: int, keys: mx.array, values: mx.array) -> KvViews[mx.array]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns those [kv_heads, m, head_dim] that a query among the n may attend
        to. Raises `ContextExceeded` with nothing written, and `ValueError` for
        shapes that are not the layer's.
        """
        store, index = self._place_of_update(layer, tuple(keys.shape), tuple(values.shape))
        count = keys.shape[1]
        store.write(index, self.prepare(count)[store.group], keys, values)
        mx.eval(self.arrays)
        return self._views(store, index, count)

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [array for slab in self.slabs for array in slab.payload.arrays]

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

    def read(self, layer: int, masks: dict[LayerGroup, FeedMasks]) -> FeedSegments:
        """One layer's segments."""
        store, index = self._place(layer)
        return store.read(index, masks[store.group])

    def _fill_stores(self, count: int, seed: int) -> None:
        for index, store in enumerate(self._stores):
            store.fill(count, mx.random.key(seed + index))

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
