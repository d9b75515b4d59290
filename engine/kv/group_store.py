"""The slabs of the layers that are placed alike, one a segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, cast

import numpy as np

from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.tile import Packed
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.kv.chunks import chunks
from kakeya_fleet.engine.kv.feed import EvictedRead, FeedSegments, Masks
from kakeya_fleet.engine.kv.kernels import Array, Kernels, Segment
from kakeya_fleet.engine.kv.slot_writes import Write, final_segments, writes
from kakeya_fleet.engine.memory.slab_pool import Claim, Slab, SlabPool


class Clearable(Protocol):
    """What caches keep in slabs: segments, states, vectors."""

    def clear(self) -> None:
        """Makes it like new."""
        ...


def kv_pool(budget_bytes: int | None = None) -> SlabPool[Any]:
    """A pool whose slabs are cleared before they are taken again."""

    def clean(payload: Clearable) -> None:
        payload.clear()

    return SlabPool(clean, budget_bytes)


class GroupStore(Generic[Array]):
    """Keys and values of the layers of `group`, in segments at fixed slots."""

    def __init__(
        self,
        group: LayerGroup,
        placement: Placement,
        kernels: Kernels[Array],
        pool: SlabPool[Any],
        *,
        grows: bool = False,
    ) -> None:
        """A store without slabs yet; see `take`."""
        self.group = group
        self.grows = grows
        """Whether it takes slabs as the history comes to their segments."""
        self.placement = placement
        """Of all segments, also of those that a store which grows has not come to."""
        self.slabs: list[Slab[Segment[Array]]] = []
        """Those of the first segments; of all, unless the store `grows`."""
        self.chunks = chunks(placement.segments)
        self._kernels = kernels
        self.pool = pool
        self._promised: set[int] = set()
        """Segments whose `promised` copy is this store's; see `SlabPool.give_back`."""

    @classmethod
    def take(
        cls,
        group: LayerGroup,
        placement: Placement,
        kernels: Kernels[Array],
        pool: SlabPool[Any],
        *,
        grows: bool = False,
    ) -> GroupStore[Array]:
        """A store of clean slabs: one that `grows` begins with those of the first position.

        Raises `OutOfKvMemory` with nothing taken.
        """
        store = cls(group, placement, kernels, pool, grows=grows)
        store.extend(placement.used(1) if grows else len(placement.segments))
        return store

    @property
    def dtype(self) -> str:
        """`float32` or `bfloat16`, of its numbers."""
        return self._kernels.dtype

    @property
    def arrays(self) -> list[Array]:
        """All that it holds."""
        return [array for slab in self.slabs for array in slab.payload.arrays]

    def missing_bytes(self, segments: Sequence[int]) -> int:
        """Bytes of the slabs that it lacks of these segments."""
        return sum(map(self._bytes, segments[len(self.slabs) :]))

    def extend(self, segments: int, claim: Claim | None = None) -> None:
        """Takes slabs until it has those of the first `segments`, of what was claimed.

        Raises `OutOfKvMemory` with nothing taken.
        """
        self._extend(self.placement.segments[:segments], claim)

    def shorten(self, segments: int) -> None:
        """Gives back the slabs behind the first `segments`."""
        while len(self.slabs) > segments:
            slab = self.slabs.pop()
            self.pool.give_back(slab, promised=len(self.slabs) in self._promised)
            self._promised.discard(len(self.slabs))

    def resize(self, placement: Placement, claim: Claim | None = None) -> None:
        """Takes the slabs that `placement` has more, or gives back those that it has less.

        The segments that both have are the same. Raises `OutOfKvMemory` with
        nothing taken.
        """
        self._extend(placement.segments, claim)
        self.shorten(len(placement.segments))
        self.placement = placement
        self.chunks = chunks(placement.segments)

    def release(self) -> None:
        """Gives the slabs back."""
        self.shorten(0)

    def feed(
        self, layer: int, masks: Masks[Array], evicted: EvictedRead | None = None
    ) -> FeedSegments[Array]:
        """One layer's segments as far as `masks` goes; `layer` counts within the group."""
        segments = [slab.payload for slab in self.slabs[: len(masks.biases)]]
        return FeedSegments(
            masks,
            [segment.keys[layer] for segment in segments],
            [segment.values[layer] for segment in segments],
            evicted,
        )

    def make_writable(self, writes: Sequence[Write]) -> None:
        """Parts with the other holders of slabs that are about to be written."""
        for index in {write.segment for write in writes}:
            self._promised.discard(index)
            self.slabs[index] = self._own(self.slabs[index], self.placement.segments[index])

    def write(self, layer: int, writes: Sequence[Write], keys: Array, values: Array) -> None:
        """Stores keys and values [kv_heads, count, head_dim]; `layer` counts within the group."""
        for write in writes:
            self.slabs[write.segment].payload.write(layer, write, keys, values)

    def put(self, first: int, numbers: Raw) -> None:
        """Stores the keys and values of `first` onwards, as `Segment.put` takes them."""
        for write in writes(self.placement, first, numbers.shape[3] * self._kernels.tile):
            segment = self.slabs[write.segment].payload
            segment.put(write, numbers)
            self._kernels.settle(segment.arrays)

    def positions(self, first: int, end: int) -> Raw:
        """A copy of the keys and values of `first` to `end`, exclusive, as they lie here.

        [layers, 2, kv_heads, n, head_dim]; they must still be there.
        """
        parts = [
            self.slabs[write.segment].payload.read(write.slot, write.count)
            for write in writes(self.placement, first, end - first)
        ]
        return cast(Raw, np.concatenate(parts, axis=3))

    def packed_positions(self, codec: KvCodec, first: int, end: int) -> Packed:
        """What `codec` makes of `positions`. Raises `CodecRefused`."""
        return self.packed(codec, self.positions(first, end))

    def packed(self, codec: KvCodec, numbers: Raw) -> Packed:
        """What `codec` makes of numbers of whole tiles, of all layers. Raises `CodecRefused`."""
        return self._kernels.packed(codec, numbers)

    def layer_positions(self, layer: int, first: int, end: int) -> Raw:
        """A copy of one layer's of `positions`, [2, kv_heads, n, head_dim]."""
        parts = [
            self.slabs[write.segment].payload.read_layer(layer, write.slot, write.count)
            for write in writes(self.placement, first, end - first)
        ]
        return cast(Raw, np.concatenate(parts, axis=2))

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when this store is released now."""
        return sum(
            self.pool.freed_by(slab, promised=index in self._promised)
            for index, slab in enumerate(self.slabs)
        )

    def fork_bytes(self, length: int, written_from: int, placement: Placement | None = None) -> int:
        """Bytes that `fork` reserves."""
        placement = placement or self.placement
        final = final_segments(placement, length, written_from)
        shared = self._shared(placement, length)
        return sum(slab.nbytes for slab in self.slabs[final:shared])

    def fork(
        self, length: int, written_from: int, placement: Placement | None = None
    ) -> GroupStore[Array]:
        """A store of the positions below `length`; this one is written from `written_from` on.

        It shares all slabs until they are written. One that `grows` shares those of these
        positions only, and takes others when it comes to them. Or those of `placement`,
        which has as many or fewer of the same segments. Raises `OutOfKvMemory` with
        nothing taken.
        """
        placement = placement or self.placement
        final = final_segments(placement, length, written_from)
        store = GroupStore(self.group, placement, self._kernels, self.pool, grows=self.grows)
        try:
            for index, slab in enumerate(self.slabs[: self._shared(placement, length)]):
                store.slabs.append(self.pool.share(slab, will_write=index >= final))
                if index >= final:
                    store._promised.add(index)
        except BaseException:
            store.release()
            raise
        self._promised = {kept for kept in self._promised if kept >= len(store.slabs)}
        return store

    def fill(self, end: int, rng: np.random.Generator) -> None:
        """Random numbers in all segments that hold positions below `end`."""
        for slab in self.slabs[: self.placement.used(end)]:
            slab.payload.fill(int(rng.integers(2**32)))
            self._kernels.settle(slab.payload.arrays)

    def shape_of(self, keys: int) -> tuple[int, ...]:
        """The shape of the numbers of so many positions of all layers, keys and values."""
        shape = self.group.shape
        return (len(self.group.layers), 2, shape.kv_heads, keys, shape.head_dim)

    def _extend(self, segments: Sequence[int], claim: Claim | None) -> None:
        """Takes the slabs that are missing of these segments, all or none."""
        if claim is None:
            with self.pool.claimed(self.missing_bytes(segments)) as own:
                self._extend(segments, own)
            return
        before = len(self.slabs)
        try:
            for keys in segments[before:]:
                self.slabs.append(self._take(keys, claim))
                self._kernels.settle(self.slabs[-1].payload.arrays)
        except BaseException:
            self.shorten(before)
            raise

    def _bytes(self, keys: int) -> int:
        return self._kernels.segment_bytes(self.group, keys)

    def _take(self, keys: int, claim: Claim) -> Slab[Segment[Array]]:
        kernels = self._kernels
        kind = (self.shape_of(keys), kernels.dtype, kernels.packing, kernels.memory)
        return self.pool.take(
            kind, self._bytes(keys), lambda: self._kernels.segment(self.group, keys), claim
        )

    def _own(self, slab: Slab[Segment[Array]], keys: int) -> Slab[Segment[Array]]:
        """`slab` if nobody else holds it, else a copy."""

        def copy(target: Segment[Array], source: Segment[Array]) -> None:
            target.copy_from(source)

        return self.pool.writable(slab, lambda: self._kernels.segment(self.group, keys), copy)

    def _shared(self, placement: Placement, length: int) -> int:
        """Segments that a fork of the positions below `length` shares."""
        return placement.used(length) if self.grows else len(placement.segments)
