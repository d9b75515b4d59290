"""A cache's slabs of keys and values: one store for each group of layers, as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Generic

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.contracts.raw_numbers import FORMATS, as_float32, in_format, is_finite
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.kernels import Array, Kernels
from kakeya_fleet.engine.kv.slot_writes import Write, writes
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


class LayerStores(Generic[Array]):
    """The stores of all groups of layers; what takes memory takes it in all of them or none."""

    def __init__(self, stores: Iterable[GroupStore[Array]]) -> None:
        self.by_group = {store.group: store for store in stores}
        self._growing = [store for store in self.by_group.values() if store.grows]
        """Those that take slabs as the history comes to their segments."""
        self._places = {
            layer: (store, index)
            for store in self.by_group.values()
            for index, layer in enumerate(store.group.layers)
        }

    @classmethod
    def take(
        cls, layout: KvLayout, spec: CacheSpec, kernels: Kernels[Array], pool: SlabPool[Any]
    ) -> LayerStores[Array]:
        """Stores of clean slabs for `spec`. Raises `OutOfKvMemory` with nothing taken."""
        return cls._all_or_none(
            layout.groups,
            lambda group: GroupStore.take(
                group, layout.placement(group, spec), kernels, pool, grows=layout.grows(group, spec)
            ),
        )

    @classmethod
    def _all_or_none(
        cls, groups: Iterable[LayerGroup], make: Callable[[LayerGroup], GroupStore[Array]]
    ) -> LayerStores[Array]:
        with ExitStack() as taken:
            stores = []
            for group in groups:
                stores.append(make(group))
                taken.callback(stores[-1].release)
            taken.pop_all()
        return cls(stores)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that are placed alike."""
        return tuple(self.by_group)

    @property
    def restored(self) -> list[GroupStore[Array]]:
        """Those of the layers that see all of the history."""
        return [
            store for store in self.by_group.values() if store.group.shape.sliding_window is None
        ]

    @property
    def arrays(self) -> list[Array]:
        """All that they hold of the back end's."""
        return [array for store in self.by_group.values() for array in store.arrays]

    @property
    def slabs(self) -> list[Slab[Any]]:
        """All that they hold of the pool."""
        return [slab for store in self.by_group.values() for slab in store.slabs]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when these are released now."""
        return sum(store.freed_bytes for store in self.by_group.values())

    @property
    def widest(self) -> int:
        """The most tokens of one forward that all of them take."""
        return min(store.placement.widest for store in self.by_group.values())

    def place(self, layer: int) -> tuple[GroupStore[Array], int]:
        """The store of a layer, and the layer's index in it. `ValueError` for one without keys."""
        if layer not in self._places:
            raise ValueError(
                f"layer {layer} has no keys of its own; layers {sorted(self._places)} have"
            )
        return self._places[layer]

    def forkable_from(self, written: int) -> int:
        """The shortest prefix whose keys are all still there after `written` positions."""
        return max(
            (store.placement.forkable_from(written) for store in self.by_group.values()), default=0
        )

    def positions(self, first: int, end: int, written: int) -> tuple[Raw, ...] | None:
        """Each store's `GroupStore.positions`; None unless all are there after `written`."""
        stores = self.by_group.values()
        if not all(store.placement.has(first, end, written) for store in stores):
            return None
        return tuple(store.positions(first, end) for store in stores)

    def shaped(self, count: int, numbers: Sequence[Raw]) -> list[Raw]:
        """Finite numbers of `count` positions, a store each, in its shape and format.

        Raises `BadParameters`.
        """
        wanted = [math.prod(store.shape_of(count)) for store in self.by_group.values()]
        if [each.size for each in numbers] != wanted:
            raise BadParameters(
                f"{count} positions of this model have {wanted} numbers by group of layers, not"
                f" {[each.size for each in numbers]}",
                field="keys_values",
            )
        if not all(map(is_finite, numbers)):
            raise BadParameters("keys and values are not all finite", field="keys_values")
        made = []
        for store, each in zip(self.by_group.values(), numbers, strict=True):
            is_own = each.dtype == FORMATS[store.dtype]
            own = each if is_own else in_format(as_float32(each), store.dtype)
            made.append(own.reshape(store.shape_of(count)))
        return made

    def put(self, first: int, numbers: Sequence[Raw]) -> None:
        """Stores what `shaped` gave, of positions from `first` on, which are writable."""
        for store, each in zip(self.by_group.values(), numbers, strict=True):
            store.put(first, each)

    def reach(self, limit: int) -> int:
        """The positions below this, `limit` at most, have their memory."""
        return min(
            [limit, *(sum(store.placement.segments[: len(store.slabs)]) for store in self._growing)]
        )

    def growth_bytes(self, end: int) -> int:
        """Bytes that `grow` to `end` takes."""
        return sum(
            store.missing_bytes(store.placement.segments[: store.placement.used(end)])
            for store in self._growing
        )

    def grow(self, end: int) -> None:
        """Takes the memory of the positions below `end`. Raises `OutOfKvMemory`, nothing taken."""
        if all(store.placement.used(end) <= len(store.slabs) for store in self._growing):
            return
        needed = self.growth_bytes(end)
        growing = [(store, len(store.slabs)) for store in self._growing]
        with growing[0][0].pool.claimed(needed) as claim:
            try:
                for store, _ in growing:
                    store.extend(store.placement.used(end), claim)
            except BaseException:
                for store, before in growing:
                    store.shorten(before)
                raise

    def make_writable(self, first: int, count: int) -> dict[LayerGroup, list[Write]]:
        """Where the `count` positions from `first` go, in slabs that nobody else holds."""
        found = {}
        for group, store in self.by_group.items():
            found[group] = writes(store.placement, first, count)
            store.make_writable(found[group])
        return found

    def fill(self, count: int, rng: np.random.Generator) -> None:
        """Random numbers where empty stores have the first `count` positions."""
        for store in self.by_group.values():
            store.make_writable(writes(store.placement, 0, min(count, store.placement.slots)))
        for store in self.by_group.values():
            store.fill(count, rng)

    def fork_bytes(self, length: int, written_from: int) -> int:
        """Bytes that `fork` reserves."""
        return sum(store.fork_bytes(length, written_from) for store in self.by_group.values())

    def fork(self, length: int, written_from: int) -> LayerStores[Array]:
        """Stores of the positions below `length`, while these are written from `written_from` on.

        Raises `OutOfKvMemory` with nothing taken.
        """
        return self._all_or_none(
            self.by_group, lambda group: self.by_group[group].fork(length, written_from)
        )

    def release(self) -> None:
        """Gives the slabs back."""
        for store in self.by_group.values():
            store.release()
