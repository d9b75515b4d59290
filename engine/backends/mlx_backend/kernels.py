"""What MLX computes for caches and stores: see `engine.kv.kernels`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.mlx_backend.attention import chunk_partials, merged
from kakeya_fleet.engine.backends.mlx_backend.dtypes import from_raw, mlx_dtype, raw
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.tile import Codec, Packed
from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.contracts.raw_numbers import as_float32
from kakeya_fleet.engine.kv.feed import FeedSegments, Partial
from kakeya_fleet.engine.kv.kernels import MOST_QUERIES
from kakeya_fleet.engine.kv.slot_views import Seen
from kakeya_fleet.engine.kv.slot_writes import Write


class MlxSegment:
    """Keys and values [kv_heads, slots, head_dim] of each layer of a group.

    A layer's array is a Python object that belongs to one segment alone: writing
    into it replaces what the object stands for. MLX does so in place when nobody
    else stands for the same memory, else in a copy.
    """

    def __init__(self, layers: int, shape: tuple[int, int, int], dtype: mx.Dtype) -> None:
        self.keys = [mx.zeros(shape, dtype) for _ in range(layers)]
        """By layer."""
        self.values = [mx.zeros(shape, dtype) for _ in range(layers)]
        """By layer."""

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [*self.keys, *self.values]

    def clear(self) -> None:
        """Makes all numbers 0."""
        self.keys = [mx.zeros_like(array) for array in self.keys]
        self.values = [mx.zeros_like(array) for array in self.values]

    def copy_from(self, other: MlxSegment) -> None:
        """Takes the numbers of `other`, in memory of its own once either is written."""
        self.keys = [mx.contiguous(array) for array in other.keys]
        self.values = [mx.contiguous(array) for array in other.values]

    def fill(self, seed: int) -> None:
        """Random numbers in all slots."""
        key = mx.random.key(seed)
        for arrays in (self.keys, self.values):
            for layer, array in enumerate(arrays):
                key, own = mx.random.split(key)
                arrays[layer] = mx.random.normal(array.shape, array.dtype, key=own)

    def write(self, layer: int, write: Write, keys: mx.array, values: mx.array) -> None:
        """Stores the tokens that `write` takes of keys and values [kv_heads, n, head_dim]."""
        to = slice(write.slot, write.slot + write.count)
        of = slice(write.token, write.token + write.count)
        self.keys[layer][:, to] = keys[:, of]
        self.values[layer][:, to] = values[:, of]

    def put(self, write: Write, numbers: Raw) -> None:
        """Stores what `write` takes of numbers [layers, 2, kv_heads, n, head_dim]."""
        own = from_raw(numbers, self.keys[0].dtype)
        for layer in range(len(self.keys)):
            self.write(layer, write, own[layer, 0], own[layer, 1])

    def read(self, slot: int, count: int) -> Raw:
        """A copy of the numbers [layers, 2, kv_heads, count, head_dim] from `slot` on."""
        layers = [self.read_layer(layer, slot, count) for layer in range(len(self.keys))]
        return cast(Raw, np.stack(layers))

    def read_layer(self, layer: int, slot: int, count: int) -> Raw:
        """One layer's of `read`."""
        of = slice(slot, slot + count)
        return cast(Raw, np.stack([raw(self.keys[layer][:, of]), raw(self.values[layer][:, of])]))


class MlxKernels:
    """MLX's arrays in one number format, on its default device."""

    packing = ""
    memory = ""
    tile = 1

    def __init__(self, dtype: str) -> None:
        """Raises `BadParameters` for another dtype than `float32` and `bfloat16`."""
        self.dtype = dtype
        self._dtype = mlx_dtype(dtype)
        self.item_bytes: int = self._dtype.size

    def segment_bytes(self, group: LayerGroup, keys: int) -> int:
        """Bytes of a segment of `keys` slots for the layers of `group`."""
        return keys * group.bytes_per_slot(self.item_bytes)

    def segment(self, group: LayerGroup, keys: int) -> MlxSegment:
        """A segment of `keys` slots for the layers of `group`, all zeros."""
        shape = (group.shape.kv_heads, keys, group.shape.head_dim)
        return MlxSegment(len(group.layers), shape, self._dtype)

    def settle(self, arrays: Iterable[mx.array]) -> None:
        """Computes what waits to be computed of these."""
        mx.eval(*arrays)

    def biases(self, seen: Sequence[Seen | None], groups: int) -> tuple[mx.array | None, ...]:
        """Masks [groups * queries, keys]; row g * queries + i is query i, for every head g."""
        zero, hidden = np.float32(0), np.float32("-inf")
        return tuple(
            None if part is None else mx.array(np.tile(np.where(part, zero, hidden), (groups, 1)))
            for part in seen
        )

    def stacked(
        self,
        placement: Placement,
        biases: Sequence[mx.array | None],
        groups: int,
        queries: int,
    ) -> None:
        """None: a ring of one segment is read as any other."""

    def query_counts(self, shape: AttentionLayer) -> tuple[int, ...]:  # noqa: ARG002 - of any
        """One shape, one kernel: queries are padded to the widest product."""
        return (MOST_QUERIES,)

    def rows(self, queries: Floats, kv_heads: int) -> mx.array:
        """Queries [heads, n, head_dim] as rows [kv_heads, groups * n, head_dim]."""
        return mx.array(queries).astype(self._dtype).reshape(kv_heads, -1, queries.shape[2])

    def packed(self, codec: KvCodec, numbers: Raw) -> Packed:
        """See `Kernels`."""
        return codec.encode(as_float32(numbers))

    def unpacked(self, codec: Codec, tiles: Packed, head_dim: int, *, are_keys: bool) -> mx.array:  # noqa: ARG002 - both alike
        """Tiles [kv_heads, n, bytes] as a segment's keys or values."""
        numbers = codec.decode(tiles.reshape(-1, tiles.shape[2]), head_dim)
        return mx.array(numbers).astype(self._dtype).reshape(len(tiles), -1, head_dim)

    def packed_reads(self, codec: KvCodec, head_dim: int) -> None:
        """None: MLX unpacks them."""

    def attend(
        self, rows: mx.array, feed: FeedSegments[mx.array], scaling: float
    ) -> list[Partial[mx.array]]:
        """Attention of `rows` to each chunk of the feed's segments."""
        return chunk_partials(rows, feed, scaling)

    def merged(self, first: Partial[mx.array], second: Partial[mx.array]) -> Partial[mx.array]:
        """Attention to the keys of both."""
        return merged(first, second)

    def host(self, array: mx.array) -> Floats:
        """A copy of the numbers of a float32 array."""
        found: Floats = np.array(array)
        return found

    def device(self, numbers: Floats, like: mx.array) -> mx.array:
        """Numbers as an array of the shape of `like`."""
        return mx.array(numbers).reshape(like.shape)
