"""One session's keys and values as torch tensors, and one forward's way into them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.backends.torch_backend.kv_shape import KvShape
from engine.backends.torch_backend.slot_maps import ContiguousSlots, RingSlots, SlotMap
from engine.cache import CacheKind, CacheSpec
from engine.errors import BadParameters, ContextExceeded, KvStrategyUnsupported
from engine.positions import resident_count


def slot_map(shape: KvShape, spec: CacheSpec) -> SlotMap:
    """How `spec` places positions. Raises `KvStrategyUnsupported` or `BadParameters`."""
    if spec.kind is CacheKind.CONTIGUOUS:
        if not 1 <= spec.capacity <= shape.context_length:
            raise BadParameters(
                f"capacity {spec.capacity} is outside 1..{shape.context_length}, "
                "the model's positions",
                capacity=str(spec.capacity),
            )
        return ContiguousSlots(shape, spec.capacity)
    if spec.kind is CacheKind.SINK_WINDOW:
        if spec.sink < 0 or spec.window < 1:
            raise BadParameters(
                f"sink {spec.sink} and window {spec.window}: sink must be at least 0, "
                "window at least 1",
                sink=str(spec.sink),
                window=str(spec.window),
            )
        return RingSlots(shape, spec.sink, spec.window)
    raise KvStrategyUnsupported(f"this back end has no cache {spec.kind!r}", kind=str(spec.kind))


@dataclass(frozen=True, slots=True)
class LayerSegments:
    """What attention reads of one layer: its segments that hold keys, and their masks.

    `keys[s]` is [kv_heads, head_dim, segment] (a transposed view), `values[s]`
    [kv_heads, segment, head_dim], `biases[s]` [groups * width, segment].
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]


class TorchKvCache:
    """Keys and values of all layers in one tensor [layers, 2, kv_heads, slots, head_dim]."""

    def __init__(
        self, shape: KvShape, spec: CacheSpec, slots: SlotMap, storage: Tensor | None = None
    ) -> None:
        self._shape = shape
        self._spec = spec
        self._slots = slots
        self._length = 0
        self._truncatable_from = 0
        if storage is None:
            # Zeros and not uninitialised: a masked key's weight is 0, and 0 * NaN is NaN.
            storage = torch.zeros(
                (shape.layers, 2, shape.kv_heads, slots.slots, shape.head_dim), dtype=shape.dtype
            )
        self._storage = storage
        self._keys = tuple(layer[0] for layer in storage)
        self._values = tuple(layer[1] for layer in storage)
        self._key_segments = tuple(
            tuple(piece.transpose(1, 2) for piece in keys.split(slots.segment, dim=1))
            for keys in self._keys
        )
        self._value_segments = tuple(
            tuple(values.split(slots.segment, dim=1)) for values in self._values
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
    def memory_bytes(self) -> int:
        """Bytes of the storage allocated."""
        return self._storage.nbytes

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range."""
        if not self._truncatable_from <= length <= self._length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._truncatable_from} to {self._length}"
            )
        self._length = length

    def check_room(self, count: int) -> None:
        """Raises `ContextExceeded` unless `count` more positions fit."""
        limit = self._shape.context_length
        if self._spec.kind is CacheKind.CONTIGUOUS:
            limit = self._spec.capacity
        if self._length + count > limit:
            raise ContextExceeded(
                f"a history of {self._length + count} tokens is longer than {limit}",
                length=str(self._length + count),
                limit=str(limit),
            )

    def commit(self, count: int) -> None:
        """Counts the `count` positions that a forward has written."""
        self._truncatable_from = self._length
        self._length += count

    def clone(self) -> TorchKvCache:
        """An independent copy with the same contents."""
        copy = TorchKvCache(self._shape, self._spec, self._slots, self._storage.clone())
        copy._length = self._length
        copy._truncatable_from = self._truncatable_from
        return copy

    def held(self, layer: int, position: int) -> tuple[Tensor, Tensor]:
        """Copies of the key and value [kv_heads, head_dim] in the slot of `position`."""
        slot = int(self._slots.indices(position, 1)[0])
        return self._keys[layer][:, slot].clone(), self._values[layer][:, slot].clone()

    def step(self, queries: Tensor, count: int) -> ForwardStep:
        """The next forward's way into this cache; `queries` [width] are its positions."""
        end = self._length + count
        return ForwardStep(self, self._slots.indices(self._length, count), count, queries, end)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [kv_heads, count, head_dim] of one layer in `slots`."""
        self._keys[layer].index_copy_(1, slots, keys)
        self._values[layer].index_copy_(1, slots, values)

    def biases(self, queries: Tensor, end: int) -> tuple[Tensor, ...]:
        """The masks of the segments that hold keys below `end`; see `SlotMap.biases`."""
        return self._slots.biases(queries, end)

    def read(self, layer: int, biases: tuple[Tensor, ...]) -> LayerSegments:
        """The first `len(biases)` segments of one layer, without a copy."""
        used = len(biases)
        return LayerSegments(
            self._key_segments[layer][:used], self._value_segments[layer][:used], biases
        )


class ForwardStep:
    """What transformers' attention layers see as their cache during one forward.

    Its `update` writes the real queries' keys and values (padding rows write
    nothing) and hands back the layer's segments, which only this engine's own
    attention function can read. The library's layers pass them through.
    """

    def __init__(
        self, cache: TorchKvCache, slots: Tensor, count: int, queries: Tensor, end: int
    ) -> None:
        self._cache = cache
        self._slots = slots
        self._count = count
        self._biases = cache.biases(queries, end)

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[LayerSegments, LayerSegments]:
        """Writes keys and values [1, kv_heads, width, head_dim] of one layer."""
        count = self._count
        self._cache.write(layer_idx, self._slots, keys[0, :, :count], values[0, :, :count])
        segments = self._cache.read(layer_idx, self._biases)
        return segments, segments
