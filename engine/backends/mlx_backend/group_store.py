"""The slabs of the layers that are placed alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.mlx_backend.attention import FeedMasks, FeedSegments
from kakeya_fleet.engine.backends.mlx_backend.dtypes import raw
from kakeya_fleet.engine.backends.mlx_backend.masks import chunks
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.mlx_backend.vector_ring import Vectors
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.kv.slot_writes import Write, final_segments, writes
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


@dataclass(slots=True)
class Segment:
    """One segment's keys and values [kv_heads, keys, head_dim] of each layer of a group.

    A layer's array is a Python object that belongs to one segment alone: writing
    into it replaces what the object stands for. MLX does so in place when nobody
    else stands for the same memory, else in a copy.
    """

    keys: list[mx.array]
    values: list[mx.array]

    @classmethod
    def zeros(cls, layers: int, shape: tuple[int, int, int], dtype: mx.Dtype) -> Segment:
        """Zeros and not anything: a masked key's weight is 0, and 0 * NaN is NaN."""
        return cls(
            [mx.zeros(shape, dtype) for _ in range(layers)],
            [mx.zeros(shape, dtype) for _ in range(layers)],
        )

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [*self.keys, *self.values]

    def become(self, other: Segment) -> None:
        """Takes the contents of `other`, in memory of its own once either is written."""
        self.keys = [mx.contiguous(array) for array in other.keys]
        self.values = [mx.contiguous(array) for array in other.values]

    def clear(self) -> None:
        """Makes it zeros again."""
        self.keys = [mx.zeros_like(array) for array in self.keys]
        self.values = [mx.zeros_like(array) for array in self.values]


@dataclass(slots=True)
class States:
    """The recurrent layers' states by layer."""

    by_layer: dict[int, RecurrentState]

    @property
    def arrays(self) -> list[mx.array]:
        """All that they hold."""
        return [array for state in self.by_layer.values() for array in state.arrays]


Payload = Segment | States | Vectors
MlxPool = SlabPool[Payload]


def mlx_pool(budget_bytes: int | None = None) -> MlxPool:
    """A pool whose segments are cleared before they are taken again."""

    def clean(payload: Payload) -> None:
        if isinstance(payload, Segment):
            payload.clear()

    return SlabPool(clean, budget_bytes)


class GroupStore:
    """The slabs of the layers that are placed alike, one a segment."""

    def __init__(
        self,
        group: LayerGroup,
        placement: Placement,
        dtype: mx.Dtype,
        pool: MlxPool,
        *,
        grows: bool = False,
    ) -> None:
        """A store without slabs yet; see `take`. One that `grows` has those of the first segments.

        Any other has those of all of them.
        """
        self.group = group
        self.grows = grows
        self.placement = placement
        self.slabs: list[Slab[Payload]] = []
        self.chunks = chunks(placement.segments)
        self.dtype = dtype
        self._pool = pool
        self._promised: set[int] = set()
        """Segments whose `promised` copy is this store's; see `SlabPool.give_back`."""

    def take(self) -> None:
        """Takes clean slabs: a store that `grows` those of the first position.

        Raises `OutOfKvMemory` with nothing taken.
        """
        segments = self.placement.segments
        self.extend(self.placement.used(1) if self.grows else len(segments))

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
                kind = (len(self.group.layers), self._shape(keys), self.dtype)
                nbytes = keys * self.group.bytes_per_slot(self.dtype.size)
                self.slabs.append(self._pool.take(kind, nbytes, self._maker(keys)))
                mx.eval(self.slabs[-1].payload.arrays)
        except BaseException:
            self._give_back(before)
            raise

    def segment(self, index: int) -> Segment:
        """The keys and values of one segment."""
        payload = self.slabs[index].payload
        if not isinstance(payload, Segment):
            raise TypeError("a segment's slab holds keys and values")
        return payload

    def read(self, layer: int, masks: FeedMasks) -> FeedSegments:
        """One layer's segments as far as `masks` goes; `layer` counts within the group."""
        segments = [self.segment(index) for index in range(len(masks.biases))]
        return FeedSegments(
            masks,
            tuple(segment.keys[layer] for segment in segments),
            tuple(segment.values[layer] for segment in segments),
        )

    def make_writable(self, writes: Sequence[Write]) -> None:
        """Parts with the other holders of slabs that are about to be written."""
        for index in {write.segment for write in writes}:
            maker = self._maker(self.placement.segments[index])
            self._promised.discard(index)
            self.slabs[index] = self._pool.writable(self.slabs[index], maker, _copy)

    def write(self, layer: int, writes: Sequence[Write], keys: mx.array, values: mx.array) -> None:
        """Stores keys and values [kv_heads, count, head_dim]; `layer` counts within the group."""
        for write in writes:
            segment = self.segment(write.segment)
            to = slice(write.slot, write.slot + write.count)
            of = slice(write.token, write.token + write.count)
            segment.keys[layer][:, to] = keys[:, of]
            segment.values[layer][:, to] = values[:, of]

    def put(self, first: int, numbers: mx.array) -> None:
        """Stores the keys and values [layers, 2, kv_heads, n, head_dim] of `first` onwards."""
        pieces = writes(self.placement, first, numbers.shape[3])
        self.make_writable(pieces)
        for layer in range(len(self.group.layers)):
            self.write(layer, pieces, numbers[layer, 0], numbers[layer, 1])
        mx.eval([self.segment(piece.segment).arrays for piece in pieces])

    def positions(self, first: int, end: int) -> Raw:
        """A copy of the keys and values of `first` to `end`, exclusive, as they lie here.

        [layers, 2, kv_heads, n, head_dim]; they must still be there.
        """
        pieces = writes(self.placement, first, end - first)
        return np.stack(
            [
                np.stack([self._run(pieces, layer, values=values) for values in (False, True)])
                for layer in range(len(self.group.layers))
            ]
        )

    def _run(self, pieces: Sequence[Write], layer: int, *, values: bool) -> Raw:
        """One layer's keys or values [kv_heads, n, head_dim] of these slots."""
        segments = [(self.segment(piece.segment), piece) for piece in pieces]
        parts = [
            (segment.values if values else segment.keys)[layer][:, p.slot : p.slot + p.count]
            for segment, p in segments
        ]
        return raw(parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=1))

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
        store = GroupStore(self.group, placement, self.dtype, self._pool, grows=self.grows)
        try:
            for index, slab in enumerate(self.slabs[: self._shared(placement, length)]):
                store.slabs.append(self._pool.share(slab, will_write=index >= final))
                if index >= final:
                    store._promised.add(index)
        except BaseException:
            store.release()
            raise
        self._promised = {kept for kept in self._promised if kept >= len(store.slabs)}
        return store

    def _shared(self, placement: Placement, length: int) -> int:
        """Segments that a fork of the positions below `length` shares."""
        return placement.used(length) if self.grows else len(placement.segments)

    def fill(self, end: int, key: mx.array) -> None:
        """Random numbers in all segments that hold positions below `end`."""
        for index in range(self.placement.used(end)):
            segment = self.segment(index)
            for arrays in (segment.keys, segment.values):
                for layer, array in enumerate(arrays):
                    key, own = mx.random.split(key)
                    arrays[layer] = mx.random.normal(array.shape, self.dtype, key=own)
            mx.eval(segment.arrays)

    def release(self) -> None:
        """Gives the slabs back."""
        self._give_back(0)

    def _give_back(self, kept: int) -> None:
        """Gives back all slabs but the first `kept`."""
        while len(self.slabs) > kept:
            slab = self.slabs.pop()
            self._pool.give_back(slab, promised=len(self.slabs) in self._promised)
            self._promised.discard(len(self.slabs))

    def shape_of(self, keys: int) -> tuple[int, ...]:
        """The shape of the numbers of so many positions of all layers, keys and values."""
        return (
            len(self.group.layers),
            2,
            self.group.shape.kv_heads,
            keys,
            self.group.shape.head_dim,
        )

    def _shape(self, keys: int) -> tuple[int, int, int]:
        return (self.group.shape.kv_heads, keys, self.group.shape.head_dim)

    def _maker(self, keys: int) -> Callable[[], Payload]:
        layers = len(self.group.layers)
        return lambda: Segment.zeros(layers, self._shape(keys), self.dtype)


def _copy(target: Payload, source: Payload) -> None:
    if not isinstance(target, Segment) or not isinstance(source, Segment):
        raise TypeError("only segments are copied on write")
    target.become(source)
