"""One session's keys and values as MLX arrays, in slabs of the verifier's pool."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from engine.backends.mlx_backend.attention import FeedMasks, FeedSegments
from engine.backends.mlx_backend.group_store import GroupStore, MlxPool, Payload, States
from engine.backends.mlx_backend.masks import biases
from engine.backends.mlx_backend.recurrent import RecurrentRule, RecurrentState
from engine.cache import CacheKind, CacheSpec, KvViews
from engine.errors import ContextExceeded
from engine.kv_layout import KvLayout, LayerGroup
from engine.positions import resident_count
from engine.slab_pool import Slab
from engine.slot_views import seen_runs
from engine.slot_writes import Write, writes


class MlxKvCache:
    """Keys and values of all attention layers, and the states of recurrent ones."""

    def __init__(
        self,
        layout: KvLayout,
        spec: CacheSpec,
        pool: MlxPool,
        stores: list[GroupStore],
        states: Slab[Payload] | None,
    ) -> None:
        self._layout = layout
        self._spec = spec
        self._pool = pool
        self._stores = stores
        self._states = states
        self._length = 0
        self._written = 0
        self._truncatable_from = 0
        self._places = {
            layer: (store, index)
            for store in stores
            for index, layer in enumerate(store.group.layers)
        }

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
    def spec(self) -> CacheSpec:
        """What was allocated."""
        return self._spec

    @property
    def length(self) -> int:
        """Positions written, provisional ones included: the next one's index."""
        return self._length

    @property
    def resident(self) -> int:
        """Positions below `length` that the next query can attend to."""
        if self._spec.kind is CacheKind.CONTIGUOUS:
            return self._length
        return resident_count(self._length, self._spec.sink, self._spec.window)

    @property
    def slabs(self) -> Sequence[Slab[Payload]]:
        """What it holds of the pool."""
        states = [] if self._states is None else [self._states]
        return [slab for store in self._stores for slab in store.slabs] + states

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that hold this cache; shared ones count too."""
        return sum(array.nbytes for slab in self.slabs for array in slab.payload.arrays)

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this cache is released now."""
        states = 0 if self._states is None else self._pool.freed_by(self._states)
        return states + sum(store.freed_bytes for store in self._stores)

    @property
    def widest(self) -> int:
        """The most tokens of one forward into this cache."""
        return min(store.placement.widest for store in self._stores)

    @property
    def states(self) -> dict[int, RecurrentState]:
        """The recurrent layers' states by layer."""
        if self._states is None:
            return {}
        payload = self._states.payload
        if not isinstance(payload, States):
            raise TypeError("the states' slab holds states")
        return payload.by_layer

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that are placed alike."""
        return tuple(store.group for store in self._stores)

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys, values and states are all still there."""
        ends = [store.placement.forkable_from(self._written) for store in self._stores]
        return max([*ends, self._truncatable_from if self.states else 0])

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range."""
        if not self._truncatable_from <= length <= self._length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._truncatable_from} to {self._length}"
            )
        for state in self.states.values():
            state.truncate(length - self._truncatable_from)
        self._length = length

    def check_room(self, count: int) -> None:
        """Raises `ContextExceeded` unless `count` more positions fit."""
        limit = self._layout.context_length
        if self._spec.kind is CacheKind.CONTIGUOUS:
            limit = self._spec.capacity
        if self._length + count > limit:
            raise ContextExceeded(
                f"a history of {self._length + count} tokens is longer than {limit}",
                length=str(self._length + count),
                limit=str(limit),
            )

    def advance(self, count: int) -> None:
        """Counts the `count` positions that every layer has written."""
        self._truncatable_from = self._length
        self._length += count
        self._written = max(self._written, self._length)

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from the pool."""
        return self._layout.state_bytes + sum(
            store.fork_bytes(length, self._truncatable_from) for store in self._stores
        )

    def fork(self, length: int) -> MlxKvCache:
        """A cache of the first `length` positions that shares all until it is written."""
        if not self.forkable_from <= length <= self._length:
            raise ValueError(
                f"cannot fork {length} positions: only {self.forkable_from} to {self._length}"
            )
        stores: list[GroupStore] = []
        states: Slab[Payload] | None = None
        try:
            for store in self._stores:
                stores.append(store.fork(length, self._truncatable_from))  # noqa: PERF401
            if self._states is not None:
                kept = length - self._truncatable_from
                states = self._pool.take(
                    "states", self._states.nbytes, lambda: self._forked_states(kept)
                )
        except BaseException:
            for store in stores:
                store.release()
            raise
        forked = MlxKvCache(self._layout, self._spec, self._pool, stores, states)
        forked._length = forked._truncatable_from = length
        # Slots may hold later positions that the fork's queries mask but never read again.
        forked._written = self._written
        return forked

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        if self._length:
            raise ValueError(f"the cache holds {self._length} positions already")
        self.check_room(count)
        for index, store in enumerate(self._stores):
            store.make_writable(writes(store.placement, 0, min(count, store.placement.slots)))
            store.fill(count, mx.random.key(seed + index))
        self._length = self._written = self._truncatable_from = count

    def release(self) -> None:
        """Gives the memory back to the pool."""
        for store in self._stores:
            store.release()
        if self._states is not None:
            self._pool.give_back(self._states, keep=False)
            self._states = None

    def update(self, layer: int, keys: mx.array, values: mx.array) -> KvViews[mx.array]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns those [kv_heads, m, head_dim] that a query among the n may attend
        to. Raises `ContextExceeded` with nothing written, and `ValueError` for
        shapes that are not the layer's.
        """
        store, index = self._place(layer)
        count = keys.shape[1]
        shape = (store.group.shape.kv_heads, count, store.group.shape.head_dim)
        if tuple(keys.shape) != shape or tuple(values.shape) != shape:
            raise ValueError(f"layer {layer} takes keys and values of {shape}")
        if not 1 <= count <= store.placement.widest:
            raise ValueError(f"1 to {store.placement.widest} tokens at once, not {count}")
        self.check_room(count)
        store.write(index, self.prepare(count)[store.group], keys, values)
        mx.eval(self.arrays)
        return self._views(store, index, count)

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [array for slab in self.slabs for array in slab.payload.arrays]

    def prepare(self, count: int) -> dict[LayerGroup, list[Write]]:
        """Where the next `count` positions go, in slabs of this cache's own.

        The positions so far are final from now on: a forward that fails before
        `advance` leaves nothing behind that a later one, or a fork, would read.
        """
        found = {}
        for store in self._stores:
            found[store.group] = writes(store.placement, self._length, count)
            store.make_writable(found[store.group])
        for state in self.states.values():
            # What a state holds beyond the kept positions is of a forward that failed.
            state.truncate(self._length - self._truncatable_from)
            state.settle()
        self._truncatable_from = self._length
        self._written = max(self._written, self._length + count)
        return found

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

    def _place(self, layer: int) -> tuple[GroupStore, int]:
        if layer not in self._places:
            raise ValueError(
                f"layer {layer} has no keys of its own; layers {sorted(self._places)} have"
            )
        return self._places[layer]

    def _forked_states(self, kept: int) -> Payload:
        forked = {}
        for layer, state in self.states.items():
            forked[layer] = state.fork(kept)
        states = States(forked)
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
