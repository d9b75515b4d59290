"""One session's keys and values: positions, slabs, and what may be rolled back.

Only this knows how far a cache can go back, what a failed forward leaves, and
what a fork may share. A back end's `Kernels` touch the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Generic

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore, Raw
from kakeya_fleet.engine.contracts.features import FeatureEncoder, Features
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.contracts.positions import evicted_end, resident_count
from kakeya_fleet.engine.errors import BadParameters, ContextExceeded, KvStrategyUnsupported
from kakeya_fleet.engine.kv.chunks import cut
from kakeya_fleet.engine.kv.feed import EvictedRead, FeedSegments, Masks
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.handover import Handover
from kakeya_fleet.engine.kv.kernels import Array, Kernels
from kakeya_fleet.engine.kv.layer_stores import LayerStores
from kakeya_fleet.engine.kv.own_store import OwnStore
from kakeya_fleet.engine.kv.slot_views import seen_slots
from kakeya_fleet.engine.kv.slot_writes import Write, writes
from kakeya_fleet.engine.kv.states import AnyState, HeldStates
from kakeya_fleet.engine.kv.vector_ring import VectorRing
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


class SlabCache(Generic[Array, AnyState]):
    """Keys and values of all attention layers, and the states of recurrent ones.

    See `engine.contracts.cache.KvCache` for what is promised.
    """

    def __init__(
        self,
        layout: KvLayout,
        spec: CacheSpec,
        kernels: Kernels[Array],
        stores: LayerStores[Array],
        states: HeldStates[AnyState],
        handover: Handover | None,
    ) -> None:
        """All that is given is the cache's from now on."""
        self._layout = layout
        self._spec = spec
        self._kernels = kernels
        self._stores = stores
        self._states = states
        self._handover = handover
        self._length = 0
        self._written = 0
        self._truncatable_from = 0

    @classmethod
    def allocate(
        cls,
        layout: KvLayout,
        spec: CacheSpec,
        kernels: Kernels[Array],
        pool: SlabPool[Any],
        new_states: Callable[[], dict[int, AnyState]],
        evicted: EvictedStore | None = None,
        encoder: FeatureEncoder | None = None,
        own: OwnStore | None = None,
    ) -> SlabCache[Array, AnyState]:
        """A new, empty cache; `new_states` makes the recurrent layers' by index.

        One of kind `restored` takes over `evicted`, and keeps context vectors of its
        `encoder`; one of kind `packed` takes over `own`. Either stays the caller's when this
        raises. Raises `OutOfKvMemory`
        with nothing taken, `BadParameters` or `KvStrategyUnsupported` for a `spec`
        that cannot be.
        """
        layout.check(spec)
        if spec.hands_over is (evicted is None and own is None):
            raise BadParameters(
                f"a cache {spec.kind} {'without' if evicted is None else 'with'} a store of what"
                " it evicts"
            )
        with ExitStack() as taken:
            stores = LayerStores.take(layout, spec, kernels, pool)
            taken.callback(stores.release)
            handover: Handover | None = None
            if own is not None:
                handover = Handover.here(spec, own)
            elif evicted is not None:
                ring = layout.vector_placement(spec)
                handover = Handover.take(spec, evicted, encoder, ring, pool)
                if handover.vectors is not None:
                    taken.callback(handover.vectors.release)
            states = HeldStates.take(layout.state_bytes, new_states, kernels, pool)
            taken.pop_all()
        cache = cls(layout, spec, kernels, stores, states, handover)
        kernels.settle(cache.arrays)
        return cache

    @property
    def kernels(self) -> Kernels[Array]:
        """What touches its tensors."""
        return self._kernels

    @property
    def arrays(self) -> list[Array]:
        """All that it holds of the back end's."""
        states = [array for state in self.states.values() for array in state.arrays]
        return self._stores.arrays + states

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors that hold this cache; shared ones count too."""
        handed_over = self._handover.memory_bytes if self._handover is not None else 0
        return handed_over + sum(array.nbytes for array in self.arrays)

    @property
    def states(self) -> dict[int, AnyState]:
        """The recurrent layers' states by layer."""
        return self._states.by_layer

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes the context vectors that it keeps; None when it keeps none."""
        return self._vectors.encoder if self._vectors is not None else None

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
        if self._spec.keeps_all:
            return self._length
        return resident_count(self._length, self._spec.sink, self._spec.window, self._spec.tile)

    @property
    def slabs(self) -> Sequence[Slab[Any]]:
        """What it holds of the pool."""
        handed_over = self._handover.slabs if self._handover is not None else []
        return [*self._stores.slabs, *self._states.slabs, *handed_over]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this cache is released now."""
        handed_over = self._handover.freed_bytes if self._handover is not None else 0
        return self._stores.freed_bytes + self._states.freed_bytes + handed_over

    @property
    def widest(self) -> int:
        """The most tokens of one forward into this cache."""
        if self._spec.hands_over:
            # What the last row of a wider forward evicts would be of the forward itself.
            return min(self._stores.widest, self._spec.window)
        return self._stores.widest

    @property
    def evicted(self) -> EvictedStore | None:
        """What keeps the positions that left its window."""
        return self._handover.store if self._handover is not None else None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that are placed alike."""
        return self._stores.groups

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys, values and states are all still there."""
        states = self._truncatable_from if self.states else 0
        return max(self._stores.forkable_from(self._written), states)

    @property
    def limit(self) -> int:
        """The longest history in positions."""
        if self._spec.keeps_all:
            return self._spec.capacity
        return self._layout.context_length

    @property
    def reach(self) -> int:
        """The positions below this have their memory."""
        packed = self._handover.reach if self._handover is not None else self.limit
        return min(packed, self._stores.reach(self.limit))

    def growth_bytes(self, count: int) -> int:
        """Bytes that the next `count` positions take from the pool, copies on write aside."""
        end = min(self._length + count, self.limit)
        packed = self._handover.growth_bytes(end) if self._handover is not None else 0
        return packed + self._stores.growth_bytes(end)

    def grow(self, count: int) -> None:
        """Takes the memory of the next `count` positions, as far as the limit.

        Segments lie at the same slots whenever they are taken, and one that no query
        sees yet is not read: so the bits are those of a cache that was allocated whole.
        Raises `OutOfKvMemory` with nothing taken.
        """
        end = min(self._length + count, self.limit)
        # Either takes memory: a `packed` cache's ring has all of its own from the start.
        self._stores.grow(end)
        if self._handover is not None:
            self._handover.grow(end)

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range."""
        if not self._truncatable_from <= length <= self._length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._truncatable_from} to {self._length}"
            )
        self._states.truncate(length - self._truncatable_from)
        self._length = length

    def check_room(self, count: int) -> None:
        """Raises `ContextExceeded` unless `count` more positions fit."""
        if self._length + count > self.limit:
            raise ContextExceeded(
                f"a history of {self._length + count} tokens is longer than {self.limit}",
                length=str(self._length + count),
                limit=str(self.limit),
            )

    def evict(self, count: int) -> None:
        """Hands over what the last of the next `count` queries has behind its window.

        Those positions lie before `length`, as `count` <= window: they are final.
        They are still in the ring: every forward so far that began at b with n
        tokens left none of b + n - 1 - window or before undeposited, and wrote
        over none behind that, as ring >= window. Raises what the store raises.
        """
        if self._handover is None:
            return
        due = self._handover.due(self._length, count)
        if due:
            self._settle()
            self._handover.deposit(due, self._stores.restored)

    def prepare(self, count: int) -> dict[LayerGroup, list[Write]]:
        """Where the next `count` positions go, in slabs of this cache's own.

        The positions so far are final from now on: a forward that fails before
        `advance` leaves nothing behind that a later one, or a fork, would read.
        Raises `OutOfKvMemory` for slabs that `grow` has not taken yet.
        """
        self.grow(count)
        found = self._stores.make_writable(self._length, count)
        self._settle()
        self._written = max(self._written, self._length + count)
        return found

    def _settle(self) -> None:
        """Makes the positions so far final."""
        self._states.settle(self._length - self._truncatable_from)
        self._truncatable_from = self._length

    def advance(self, count: int) -> None:
        """Counts the `count` positions that every layer has written."""
        self._truncatable_from = self._length
        self._length += count
        self._written = max(self._written, self._length)

    def keys_values(self, first: int, end: int) -> tuple[Raw, ...] | None:
        """A copy of those of `first` to `end`; None where they are not all there.

        Nor with recurrent layers, whose states are of the last position alone.
        """
        if self.states or not 0 <= first < end <= self._length:
            return None
        return self._stores.positions(first, end, self._written)

    def take_keys_values(self, count: int, numbers: Sequence[Raw]) -> None:
        """Appends `count` positions that were computed elsewhere. See `KvCache` for errors."""
        if self.states or self._spec.hands_over:
            raise KvStrategyUnsupported(
                "a cache with recurrent states, or that hands over what it evicts, takes no keys"
                " and values"
            )
        if not 1 <= count <= self.widest:
            raise BadParameters(f"{count} positions; it takes 1 to {self.widest} at once")
        self.check_room(count)
        shaped = self._stores.shaped(count, numbers)
        self.prepare(count)
        self._stores.put(self._length, shaped)
        self.advance(count)

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        if self._length:
            raise ValueError(f"the cache holds {self._length} positions already")
        self.check_room(count)
        self.grow(count)
        rng = np.random.default_rng(seed)
        self._stores.fill(count, rng)
        if self._handover is not None:
            self._handover.fill(count, self._stores.restored, rng)
        self._length = self._written = self._truncatable_from = count

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from the pool."""
        handed_over = self._handover.fork_bytes(length) if self._handover is not None else 0
        return (
            self._layout.state_bytes
            + handed_over
            + self._stores.fork_bytes(length, self._truncatable_from)
        )

    def fork(self, length: int) -> SlabCache[Array, AnyState]:
        """A cache of the first `length` positions that shares what neither will change."""
        if not self.forkable_from <= length <= self._length:
            raise ValueError(
                f"cannot fork {length} positions: only {self.forkable_from} to {self._length}"
            )
        with ExitStack() as taken:
            stores = self._stores.fork(length, self._truncatable_from)
            taken.callback(stores.release)
            handover = self._handover.fork(length) if self._handover is not None else None
            if handover is not None:
                taken.callback(handover.release)
            states = self._states.fork(length - self._truncatable_from)
            taken.pop_all()
        forked = SlabCache(self._layout, self._spec, self._kernels, stores, states, handover)
        forked._length = forked._truncatable_from = length
        # Its slots may hold positions up to this, which it masks.
        forked._written = self._written
        return forked

    def release(self) -> None:
        """Gives the memory back to the pool, and that of what was evicted."""
        self._stores.release()
        self._states.release()
        if self._handover is not None:
            self._handover.release()

    def masks(self, group: LayerGroup, first_row: int, count: int, queries: int) -> Masks[Array]:
        """What the next `count` queries see, for products of `queries` of them."""
        store = self._stores.by_group[group]
        end = self._length + count
        # Rows beyond the real ones repeat the last position, so that they see something.
        positions = np.minimum(np.arange(self._length, self._length + queries), end - 1)
        seen = seen_slots(store.placement, positions, end)
        groups = group.shape.groups
        biases = self._kernels.biases(seen, groups)
        return Masks(
            first_row=first_row,
            count=count,
            queries=queries,
            chunks=cut(store.chunks, len(seen)),
            biases=biases,
            evicted_from=self._evicted_from(group, end),
            stacked=self._kernels.stacked(store.placement, biases, groups, queries),
        )

    def store(self, group: LayerGroup) -> GroupStore[Array]:
        """The slabs of the layers of `group`, for kernels that read and write them by themselves.

        Written are the positions that `prepare` was told of, and no others.
        """
        return self._stores.by_group[group]

    def packed_store(self, group: LayerGroup) -> GroupStore[Any] | None:
        """The slabs of what it has packed of the layers of `group`; None where nothing ever is."""
        own = self._handover.own if self._handover is not None else None
        return None if own is None or group.shape.sliding_window is not None else own.store(group)

    def evicted_from(self, group: LayerGroup, count: int) -> int | None:
        """The next position, when any of the next `count` queries sees evicted keys of `group`."""
        return self._evicted_from(group, self._length + count)

    def write(
        self, layer: int, writes: dict[LayerGroup, list[Write]], keys: Array, values: Array
    ) -> None:
        """Stores keys and values [kv_heads, count, head_dim] of one layer."""
        store, index = self._stores.place(layer)
        store.write(index, writes[store.group], keys, values)

    def read(self, layer: int, masks: dict[LayerGroup, Masks[Array]]) -> FeedSegments[Array]:
        """One layer's segments, without a copy, and where its evicted keys are."""
        store, index = self._stores.place(layer)
        own = masks[store.group]
        if own.evicted_from is None or self._handover is None:
            return store.feed(index, own)
        evicted = EvictedRead(self._handover.store, layer, own.evicted_from)
        return store.feed(index, own, evicted)

    def keep_vectors(self, features: Features) -> None:
        """Keeps the context vectors of the positions of the forward under way.

        `features` [n, taps, hidden_size] are its rows' hidden states at the
        encoder's layers. Called before `advance`.
        """
        if self._vectors is not None:
            self._vectors.write(self._length, features)

    def held(self, layer: int, position: int) -> Raw:
        """A copy of the key and value [2, kv_heads, head_dim] in the slot of `position`."""
        store, index = self._stores.place(layer)
        (place,) = writes(store.placement, position, 1)
        segment = store.slabs[place.segment].payload
        return segment.read_layer(index, place.slot, 1)[:, :, 0].copy()

    @property
    def _vectors(self) -> VectorRing | None:
        return self._handover.vectors if self._handover is not None else None

    def _evicted_from(self, group: LayerGroup, end: int) -> int | None:
        """The next query's position when any before `end` sees evicted keys of `group`."""
        sees = self._handover is not None and group.shape.sliding_window is None
        left = evicted_end(end - 1, self._spec.window, self._spec.tile)
        return self._length if sees and left > self._spec.sink else None
