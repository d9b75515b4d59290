"""What the caches of all back ends keep count of: positions, slabs, and what may be rolled back.

Only this knows how far a cache can go back, what a failed forward leaves, and
what a fork may share. Back ends add what is made of tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import Evicted, EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement, resident_count, round_up
from kakeya_fleet.engine.errors import ContextExceeded, KvStrategyUnsupported
from kakeya_fleet.engine.kv.slot_writes import Write, writes
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool

DEPOSIT_MULTIPLE = 16
"""Positions below a multiple of it leave together."""


class Store(Protocol):
    """The slabs of the layers that are placed alike."""

    group: LayerGroup
    placement: Placement
    """Of all segments, also of those that a store which grows has not come to."""
    slabs: list[Slab[Any]]
    """Those of the first segments."""
    grows: bool
    """Whether it takes slabs as the history comes to their segments."""

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this store is released now."""
        ...

    def fork_bytes(self, length: int, written_from: int) -> int:
        """Bytes that `fork` reserves."""
        ...

    def fork(self, length: int, written_from: int) -> Self:
        """A store of the positions below `length`; this one is written from `written_from` on."""
        ...

    def extend(self, segments: int) -> None:
        """Takes slabs until it has those of the first `segments`, all or none."""
        ...

    def shorten(self, segments: int) -> None:
        """Gives back the slabs behind the first `segments`."""
        ...

    def make_writable(self, writes: Sequence[Write]) -> None:
        """Parts with the other holders of slabs that are about to be written."""
        ...

    def release(self) -> None:
        """Gives the slabs back."""
        ...


class State(Protocol):
    """A recurrent layer's state."""

    def truncate(self, count: int) -> None:
        """Keeps the first `count` tokens of the last forward."""
        ...

    def settle(self) -> None:
        """Makes the last forward's tokens final."""
        ...


AnyStore = TypeVar("AnyStore", bound=Store)


class SlabCache(ABC, Generic[AnyStore]):
    """Keys and values of all attention layers, and the states of recurrent ones.

    See `engine.contracts.cache.KvCache` for what is promised.
    """

    def __init__(
        self,
        layout: KvLayout,
        spec: CacheSpec,
        pool: SlabPool[Any],
        stores: list[AnyStore],
        states: Slab[Any] | None,
        evicted: EvictedStore | None = None,
    ) -> None:
        """`evicted` keeps what a `restored` cache evicts; it is the cache's from now on."""
        self._layout = layout
        self._spec = spec
        self._pool = pool
        self._stores = stores
        self._states = states
        self._evicted = evicted
        self._length = 0
        self._written = 0
        self._truncatable_from = 0
        self._places = {
            layer: (store, index)
            for store in stores
            for index, layer in enumerate(store.group.layers)
        }

    @property
    @abstractmethod
    def states(self) -> Mapping[int, State]:
        """The recurrent layers' states by layer."""

    @abstractmethod
    def _forked_states(self, kept: int) -> object:
        """A payload of copies with the first `kept` tokens of the last forward, all final."""

    @abstractmethod
    def _fill_stores(self, count: int, seed: int) -> None:
        """Random numbers in all segments that hold positions below `count`, and what is evicted."""

    def _leaving(self, first: int, end: int) -> Evicted:
        """What it holds of the positions `first` to `end`, exclusive, for the store of evicted."""
        raise KvStrategyUnsupported(
            f"{type(self).__name__} restores nothing: {first} to {end} stay evicted"
        )

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
    def slabs(self) -> Sequence[Slab[Any]]:
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
        widest = min(store.placement.widest for store in self._stores)
        if self._spec.kind is CacheKind.RESTORED:
            # What the last row of a wider forward evicts would be of the forward itself.
            return min(widest, self._spec.window)
        return widest

    @property
    def evicted(self) -> EvictedStore | None:
        """What keeps the evicted positions of a `restored` cache."""
        return self._evicted

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that are placed alike."""
        return tuple(store.group for store in self._stores)

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys, values and states are all still there."""
        ends = [store.placement.forkable_from(self._written) for store in self._stores]
        return max([*ends, 0 if self._states is None else self._truncatable_from])

    @property
    def limit(self) -> int:
        """The longest history in positions."""
        if self._spec.kind is CacheKind.CONTIGUOUS:
            return self._spec.capacity
        return self._layout.context_length

    @property
    def reach(self) -> int:
        """The positions below this have their memory."""
        growing = [
            sum(store.placement.segments[: len(store.slabs)])
            for store in self._stores
            if store.grows
        ]
        return min([self.limit, *growing])

    def growth_bytes(self, count: int) -> int:
        """Bytes that the next `count` positions take from the pool, copies on write aside."""
        item_bytes = self._layout.item_bytes
        return sum(
            sum(store.placement.segments[len(store.slabs) : store.placement.used(end)])
            * store.group.bytes_per_slot(item_bytes)
            for store in self._stores
            for end in (min(self._length + count, self.limit),)
            if store.grows
        )

    def grow(self, count: int) -> None:
        """Takes the memory of the next `count` positions.

        Segments lie at the same slots whenever they are taken, and one that no query
        sees yet is not read: so the bits are those of a cache that was allocated whole.
        Raises `OutOfKvMemory` with nothing taken.
        """
        growing = [(store, len(store.slabs)) for store in self._stores if store.grows]
        try:
            for store, _ in growing:
                store.extend(store.placement.used(self._length + count))
        except BaseException:
            for store, before in growing:
                store.shorten(before)
            raise

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
        over none behind that, as ring >= window. Up to `DEPOSIT_MULTIPLE` - 1 more
        go with them, so that not every step of one token has a deposit: all
        before `length` are final by now. Raises what the store raises.
        """
        store = self._evicted
        if store is None:
            return
        first = max(store.length, self._spec.sink)
        end = self._length + count - self._spec.window
        if first < end:
            self._settle()
            end = min(self._length, round_up(end, DEPOSIT_MULTIPLE))
            store.deposit(first, self._leaving(first, end))

    def prepare(self, count: int) -> dict[LayerGroup, list[Write]]:
        """Where the next `count` positions go, in slabs of this cache's own.

        The positions so far are final from now on: a forward that fails before
        `advance` leaves nothing behind that a later one, or a fork, would read.
        Raises `OutOfKvMemory` for slabs that `grow` has not taken yet.
        """
        self.grow(count)
        found = {}
        for store in self._stores:
            found[store.group] = writes(store.placement, self._length, count)
            store.make_writable(found[store.group])
        self._settle()
        self._written = max(self._written, self._length + count)
        return found

    def _settle(self) -> None:
        """Makes the positions so far final."""
        for state in self.states.values():
            # What a state holds beyond the kept positions is of a forward that failed.
            state.truncate(self._length - self._truncatable_from)
            state.settle()
        self._truncatable_from = self._length

    def advance(self, count: int) -> None:
        """Counts the `count` positions that every layer has written."""
        self._truncatable_from = self._length
        self._length += count
        self._written = max(self._written, self._length)

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        if self._length:
            raise ValueError(f"the cache holds {self._length} positions already")
        self.check_room(count)
        self.grow(count)
        for store in self._stores:
            store.make_writable(writes(store.placement, 0, min(count, store.placement.slots)))
        self._fill_stores(count, seed)
        self._length = self._written = self._truncatable_from = count

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from the pool."""
        return self._layout.state_bytes + sum(
            store.fork_bytes(length, self._truncatable_from) for store in self._stores
        )

    def release(self) -> None:
        """Gives the memory back to the pool."""
        for store in self._stores:
            store.release()
        if self._states is not None:
            self._pool.give_back(self._states, keep=False)
            self._states = None
        if self._evicted is not None:
            self._evicted.release()

    def _forked(self, length: int) -> tuple[list[AnyStore], Slab[Any] | None]:
        """What a fork of the first `length` positions holds; see `_is_fork_at`.

        Raises `ValueError` for a length that cannot be forked, and
        `OutOfKvMemory` with nothing taken.
        """
        if not self.forkable_from <= length <= self._length:
            raise ValueError(
                f"cannot fork {length} positions: only {self.forkable_from} to {self._length}"
            )
        kept = length - self._truncatable_from
        stores: list[AnyStore] = []
        states: Slab[Any] | None = None
        try:
            for store in self._stores:
                stores.append(store.fork(length, self._truncatable_from))  # noqa: PERF401
            if self._states is not None:
                states = self._pool.take(
                    "states", self._states.nbytes, lambda: self._forked_states(kept)
                )
        except BaseException:
            for store in stores:
                store.release()
            raise
        return stores, states

    def _is_fork_at(self, length: int, written: int) -> None:
        """Starts a fork's count; its slots may hold positions up to `written`, which it masks."""
        self._length = self._truncatable_from = length
        self._written = written

    def _place(self, layer: int) -> tuple[AnyStore, int]:
        if layer not in self._places:
            raise ValueError(
                f"layer {layer} has no keys of its own; layers {sorted(self._places)} have"
            )
        return self._places[layer]

    def _place_of_update(
        self, layer: int, keys: tuple[int, ...], values: tuple[int, ...]
    ) -> tuple[AnyStore, int]:
        """The place of these keys and values; see `engine.contracts.cache.LayeredCache.update`."""
        store, index = self._place(layer)
        count = keys[1]
        shape = (store.group.shape.kv_heads, count, store.group.shape.head_dim)
        if keys != shape or values != shape:
            raise ValueError(f"layer {layer} takes keys and values of {shape}")
        if not 1 <= count <= store.placement.widest:
            raise ValueError(f"1 to {store.placement.widest} tokens at once, not {count}")
        self.check_room(count)
        return store, index
