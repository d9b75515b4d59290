"""One session's keys and values as torch tensors, in slabs of the verifier's pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.backends.torch_backend.attention import FeedSegments, Masks
from engine.backends.torch_backend.group_store import GroupStore, Payload, TorchPool
from engine.backends.torch_backend.masks import biases, cut
from engine.backends.torch_backend.recurrent import RecurrentState
from engine.cache import CacheKind, CacheSpec, KvViews
from engine.errors import ContextExceeded
from engine.kv_layout import KvLayout, LayerGroup
from engine.positions import resident_count
from engine.slab_pool import Slab
from engine.slot_views import seen_runs
from engine.slot_writes import Write, writes


class TorchKvCache:
    """Keys and values of all attention layers, and the states of recurrent ones."""

    def __init__(
        self,
        layout: KvLayout,
        spec: CacheSpec,
        pool: TorchPool,
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
    def memory_bytes(self) -> int:
        """Bytes of the tensors that hold this cache; shared ones count too."""
        keys = sum(
            store.tensor(segment).nbytes
            for store in self._stores
            for segment in range(len(store.slabs))
        )
        return keys + sum(state.memory_bytes for state in self.states.values())

    @property
    def slabs(self) -> Sequence[Slab[Payload]]:
        """What it holds of the pool."""
        slabs = [slab for store in self._stores for slab in store.slabs]
        return slabs if self._states is None else [*slabs, self._states]

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
        payload = self._states.payload if self._states is not None else {}
        if isinstance(payload, Tensor):
            raise TypeError("the states' slab holds states")
        return payload

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys, values and states are all still there."""
        ends = [store.placement.forkable_from(self._written) for store in self._stores]
        return max([*ends, self._truncatable_from if self._states else 0])

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
        written_from = self._truncatable_from
        return self._layout.state_bytes + sum(
            store.fork_bytes(length, written_from) for store in self._stores
        )

    def fork(self, length: int) -> TorchKvCache:
        """A cache of the first `length` positions that shares what neither will change."""
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
                states = self._pool.take("states", self._states.nbytes, self._forked_states)
        except BaseException:
            for store in stores:
                store.release()
            raise
        forked = TorchKvCache(self._layout, self._spec, self._pool, stores, states)
        forked._length = self._length
        forked._written = self._written
        forked._truncatable_from = self._truncatable_from
        if states is not None:
            forked.truncate(length)
        forked._length = forked._truncatable_from = length
        for state in forked.states.values():
            state.settle()
        return forked

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        if self._length:
            raise ValueError(f"the cache holds {self._length} positions already")
        self.check_room(count)
        generator = torch.Generator().manual_seed(seed)
        for store in self._stores:
            store.make_writable(writes(store.placement, 0, min(count, store.placement.slots)))
            store.fill(count, generator)
        self._length = self._written = self._truncatable_from = count

    def release(self) -> None:
        """Gives the memory back to the pool."""
        for store in self._stores:
            store.release()
        if self._states is not None:
            self._pool.give_back(self._states, keep=False)
            self._states = None

    def update(self, layer: int, keys: Tensor, values: Tensor) -> KvViews[Tensor]:
        """Writes keys and values [kv_heads, n, head_dim] at positions `length` onwards.

        Returns views [kv_heads, m, head_dim] of those that a query among the n
        may attend to. Raises `ContextExceeded` with nothing written, and
        `ValueError` for shapes that are not the layer's.
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
        return self._views(store, index, self._length, self._length + count)

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

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that are placed alike."""
        return tuple(store.group for store in self._stores)

    def _forked_states(self) -> Payload:
        return {layer: state.fork() for layer, state in self.states.items()}

    def _place(self, layer: int) -> tuple[GroupStore, int]:
        if layer not in self._places:
            raise ValueError(
                f"layer {layer} has no keys of its own; layers {sorted(self._places)} have"
            )
        return self._places[layer]

    def _views(self, store: GroupStore, index: int, start: int, end: int) -> KvViews[Tensor]:
        runs = seen_runs(store.placement, start, end)
        parts = [store.tensor(run.segment)[index, :, :, run.first : run.last] for run in runs]
        return KvViews(
            tuple(part[0] for part in parts),
            tuple(part[1] for part in parts),
            tuple(run.positions for run in runs),
        )
