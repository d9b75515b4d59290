"""The slabs of the layers that are placed alike, and the views that a forward reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.masks import chunks
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.segment_products import FeedSegments, Masks
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.kv.slot_writes import Write, final_segments, writes
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool

Payload = Tensor | dict[int, RecurrentState]
"""A segment's tensor [layers, 2, kv_heads, keys, head_dim], or the recurrent layers' states."""

TorchPool = SlabPool[Payload]


def torch_pool(budget_bytes: int | None = None) -> TorchPool:
    """A pool whose slabs are zeroed before they are taken again.

    Zeros and not what was there: a masked key's weight is 0, and 0 * NaN is NaN.
    """

    def clean(payload: Payload) -> None:
        if isinstance(payload, Tensor):
            payload.zero_()

    return SlabPool(clean, budget_bytes)


class GroupStore:
    """The slabs of the layers that are placed alike, one a segment."""

    def __init__(
        self,
        group: LayerGroup,
        placement: Placement,
        dtype: torch.dtype,
        pool: TorchPool,
        slabs: list[Slab[Payload]],
        *,
        grows: bool = False,
    ) -> None:
        """`slabs` are those of the first segments; of all, unless the store `grows`."""
        self.group = group
        self.grows = grows
        self.placement = placement
        self.slabs = slabs
        self.chunks = chunks(placement.segments)
        self.dtype = dtype
        self._pool = pool
        self._promised: set[int] = set()
        """Segments whose `promised` copy is this store's; see `SlabPool.give_back`."""
        self._keys: list[list[Tensor]] = [[] for _ in group.layers]
        self._values: list[list[Tensor]] = [[] for _ in group.layers]
        for segment in range(len(slabs)):
            self._view(segment)

    @classmethod
    def take(
        cls,
        group: LayerGroup,
        placement: Placement,
        dtype: torch.dtype,
        pool: TorchPool,
        *,
        grows: bool = False,
    ) -> GroupStore:
        """A store of clean slabs: one that `grows` begins with those of the first position.

        Raises `OutOfKvMemory` with nothing taken.
        """
        store = cls(group, placement, dtype, pool, [], grows=grows)
        store.extend(placement.used(1) if grows else len(placement.segments))
        return store

    def extend(self, segments: int) -> None:
        """Takes slabs until it has those of the first `segments`.

        Raises `OutOfKvMemory` with nothing taken.
        """
        self._extend(self.placement.segments[:segments])

    def shorten(self, segments: int) -> None:
        """Gives back the slabs behind the first `segments`."""
        self._give_back(segments)

    def resize(self, placement: Placement) -> None:
        """Takes the slabs that `placement` has more, or gives back those that it has less.

        The segments that both have are the same. Raises `OutOfKvMemory` with
        nothing taken.
        """
        self._extend(placement.segments)
        self._give_back(len(placement.segments))
        self.placement = placement
        self.chunks = chunks(placement.segments)

    def _extend(self, segments: Sequence[int]) -> None:
        """Takes the slabs that are missing of these segments, all or none."""
        before = len(self.slabs)
        try:
            for keys in segments[before:]:
                self.slabs.append(self._take(keys))
                self._view(len(self.slabs) - 1)
        except BaseException:
            self._give_back(before)
            raise

    def read(self, layer: int, masks: Masks) -> FeedSegments:
        """One layer's segments without a copy; `layer` counts within the group."""
        return FeedSegments(masks, self._keys[layer], self._values[layer])

    def tensor(self, segment: int) -> Tensor:
        """The tensor of one segment."""
        payload = self.slabs[segment].payload
        if not isinstance(payload, Tensor):
            raise TypeError("a segment's slab holds a tensor")
        return payload

    def make_writable(self, writes: Sequence[Write]) -> None:
        """Parts with the holders of shared slabs that are about to be written."""
        for segment in {write.segment for write in writes}:
            old = self.slabs[segment]
            self._promised.discard(segment)
            new = self._pool.writable(old, self._maker(self.placement.segments[segment]), _copy)
            if new is not old:
                self.slabs[segment] = new
                self._view(segment)

    def write(self, layer: int, writes: Sequence[Write], keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [kv_heads, count, head_dim]; `layer` counts within the group."""
        for segment, slot, token, count in ((w.segment, w.slot, w.token, w.count) for w in writes):
            own_keys, own_values = keys.narrow(1, token, count), values.narrow(1, token, count)
            self._keys[layer][segment].narrow(2, slot, count).copy_(own_keys.transpose(1, 2))
            self._values[layer][segment].narrow(1, slot, count).copy_(own_values)

    def positions(self, first: int, end: int) -> Tensor:
        """A copy of the keys and values of `first` to `end`, exclusive.

        [layers, 2, kv_heads, n, head_dim]; they must still be there.
        """
        parts = [
            self.tensor(w.segment)[:, :, :, w.slot : w.slot + w.count]
            for w in writes(self.placement, first, end - first)
        ]
        return torch.cat(parts, dim=3)

    def put(self, first: int, numbers: Tensor) -> None:
        """Stores the keys and values [layers, 2, kv_heads, n, head_dim] of `first` onwards."""
        for w in writes(self.placement, first, numbers.shape[3]):
            of = numbers[:, :, :, w.token : w.token + w.count]
            self.tensor(w.segment)[:, :, :, w.slot : w.slot + w.count] = of

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this store is released now."""
        return sum(
            self._pool.freed_by(slab, promised=index in self._promised)
            for index, slab in enumerate(self.slabs)
        )

    def fork_bytes(self, length: int, written_from: int) -> int:
        """Bytes that `fork` reserves."""
        final = final_segments(self.placement, length, written_from)
        shared = self._shared(self.placement, length)
        return sum(slab.nbytes for slab in self.slabs[final:shared])

    def fork(
        self, length: int, written_from: int, placement: Placement | None = None
    ) -> GroupStore:
        """A store of the positions below `length` that shares all slabs until they are written.

        One that `grows` shares those of these positions only, and takes others when
        it comes to them. Or those of `placement`, which has as many or fewer of the same segments.
        Raises `OutOfKvMemory` with nothing taken.
        """
        placement = placement or self.placement
        final = final_segments(placement, length, written_from)
        store = GroupStore(self.group, placement, self.dtype, self._pool, [], grows=self.grows)
        try:
            for segment, slab in enumerate(self.slabs[: self._shared(placement, length)]):
                store.slabs.append(self._pool.share(slab, will_write=segment >= final))
                if segment >= final:
                    store._promised.add(segment)
                store._view(segment)
        except BaseException:
            store.release()
            raise
        self._promised = {kept for kept in self._promised if kept >= len(store.slabs)}
        return store

    def _shared(self, placement: Placement, length: int) -> int:
        """Segments that a fork of the positions below `length` shares."""
        return placement.used(length) if self.grows else len(placement.segments)

    def fill(self, end: int, generator: torch.Generator) -> None:
        """Random numbers in all segments that hold positions below `end`."""
        for segment in range(self.placement.used(end)):
            self.tensor(segment).normal_(generator=generator)

    def release(self) -> None:
        """Gives the slabs back."""
        self._give_back(0)

    def _give_back(self, kept: int) -> None:
        """Gives back all slabs but the first `kept`."""
        while len(self.slabs) > kept:
            slab = self.slabs.pop()
            self._pool.give_back(slab, promised=len(self.slabs) in self._promised)
            self._promised.discard(len(self.slabs))
            for views in (*self._keys, *self._values):
                del views[len(self.slabs) :]

    def shape_of(self, keys: int) -> tuple[int, ...]:
        """The shape of the numbers of so many positions."""
        shape = self.group.shape
        return (len(self.group.layers), 2, shape.kv_heads, keys, shape.head_dim)

    def _maker(self, keys: int) -> Callable[[], Payload]:
        def make() -> Payload:
            # A copy made within a forward is cleaned and written outside of it, too.
            with torch.inference_mode(mode=False):
                return torch.zeros(self.shape_of(keys), dtype=self.dtype)

        return make

    def _take(self, keys: int) -> Slab[Payload]:
        shape = self.shape_of(keys)
        nbytes = torch.Size(shape).numel() * self.dtype.itemsize
        return self._pool.take((shape, self.dtype), nbytes, self._maker(keys))

    def _view(self, segment: int) -> None:
        """Slices the segment's tensor once, so that a forward need not."""
        tensor = self.tensor(segment)
        for layer, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            keys[segment : segment + 1] = [tensor[layer, 0].transpose(1, 2)]
            values[segment : segment + 1] = [tensor[layer, 1]]


def _copy(target: Payload, source: Payload) -> None:
    if not isinstance(target, Tensor) or not isinstance(source, Tensor):
        raise TypeError("only tensors are copied on write")
    target.copy_(source)
