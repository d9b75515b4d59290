"""Segments whose keys and values are packed by a codec, and attention to them.

Where a back end reads a codec's tiles as they lie, it does. Elsewhere a segment is unpacked as
attention comes to it, a layer and chunk at a time, and what is computed is, bit for bit, what it
would be with numbers that had been packed and unpacked before they were stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.kv.kernels import ALL_QUERY_COUNTS, Array, Kernels, PackedReads

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.kv_codec import KvCodec
    from kakeya_fleet.engine.codecs.tile import Codec, Packed
    from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
    from kakeya_fleet.engine.contracts.positions import Placement
    from kakeya_fleet.engine.kv.feed import FeedSegments, Partial
    from kakeya_fleet.engine.kv.slot_views import Seen
    from kakeya_fleet.engine.kv.slot_writes import Write


class PackedSegment:
    """Tiles [layers, 1, kv_heads, slots / 64, bytes]; see `engine.kv.kernels.Segment`.

    Zeros stand for zeros with every codec.
    """

    def __init__(self, codec: KvCodec, group: LayerGroup, slots: int) -> None:
        shape = group.shape
        self._tiles: Packed = np.zeros(
            (
                len(group.layers),
                1,
                shape.kv_heads,
                slots // TILE,
                codec.tile_bytes(shape.head_dim),
            ),
            np.uint8,
        )
        self._codec = codec
        self._head_dim = shape.head_dim
        self.keys = [codec.keys_of(own[0], shape.head_dim) for own in self._tiles]
        """By layer, [kv_heads, tiles, bytes]."""
        self.values = [codec.values_of(own[0], shape.head_dim) for own in self._tiles]
        """By layer, [kv_heads, tiles, bytes]."""

    @property
    def arrays(self) -> tuple[Packed]:
        """All that it holds."""
        return (self._tiles,)

    def clear(self) -> None:
        """Makes all numbers 0."""
        self._tiles.fill(0)

    def copy_from(self, other: PackedSegment) -> None:
        """Takes the tiles of `other`."""
        self._tiles[:] = other._tiles

    def fill(self, seed: int) -> None:
        """Random numbers in all slots."""
        layers, _, heads, tiles, _ = self._tiles.shape
        size = (layers, 2, heads, tiles * TILE, self._head_dim)
        numbers = np.random.default_rng(seed).standard_normal(size, np.float32)
        self._tiles[:] = self._codec.encode(numbers)

    def write(self, layer: int, write: Write, keys: object, values: object) -> None:
        """Raises `TypeError`: a tile is packed once, when all of it has left a window."""
        raise TypeError(f"layer {layer} is packed: {write} of {keys}, {values} cannot be written")

    def put(self, write: Write, numbers: Raw) -> None:
        """Stores what `write` takes of packed tiles."""
        to, of = _tiles(write.slot, write.count), _tiles(write.token, write.count)
        self._tiles[:, :, :, to] = numbers[:, :, :, of]

    def read(self, slot: int, count: int) -> Raw:
        """The tiles from `slot` on, not copied."""
        return self._tiles[:, :, :, _tiles(slot, count)]

    def read_layer(self, layer: int, slot: int, count: int) -> Raw:
        """One layer's of `read`."""
        return self._tiles[layer, :, :, _tiles(slot, count)]


class PackedKernels:
    """What `kernels` compute, over segments that `codec` packs. Of any back end's arrays."""

    def __init__(self, kernels: Kernels[Any], codec: KvCodec) -> None:
        self._kernels = kernels
        self._codec = codec
        self.dtype = kernels.dtype
        self.item_bytes = kernels.item_bytes
        self.packing = codec.name
        self.memory = ""
        self.tile = TILE

    def segment_bytes(self, group: LayerGroup, keys: int) -> int:
        """Bytes of a packed segment of `keys` slots."""
        tiles = len(group.layers) * group.shape.kv_heads * (keys // TILE)
        return tiles * self._codec.tile_bytes(group.shape.head_dim)

    def segment(self, group: LayerGroup, keys: int) -> PackedSegment:
        """A segment of `keys` slots, all zeros."""
        return PackedSegment(self._codec, group, keys)

    def settle(self, arrays: Iterable[object]) -> None:
        """Nothing: tiles are bytes in memory."""

    def biases(self, seen: Sequence[Seen | None], groups: int) -> tuple[Any | None, ...]:
        """See `Kernels`."""
        return self._kernels.biases(seen, groups)

    def stacked(
        self, placement: Placement, biases: Sequence[Any | None], groups: int, queries: int
    ) -> Any | None:
        """See `Kernels`."""
        return self._kernels.stacked(placement, biases, groups, queries)

    def query_counts(self, shape: AttentionLayer) -> tuple[int, ...]:
        """See `Kernels`."""
        if self._kernels.packed_reads(self._codec, shape.head_dim) is None:
            return self._kernels.query_counts(shape)
        return ALL_QUERY_COUNTS

    def rows(self, queries: Floats, kv_heads: int) -> Any:
        """See `Kernels`."""
        return self._kernels.rows(queries, kv_heads)

    def packed(self, codec: KvCodec, numbers: Raw) -> Packed:
        """See `Kernels`."""
        return self._kernels.packed(codec, numbers)

    def unpacked(self, codec: Codec, tiles: Packed, head_dim: int, *, are_keys: bool) -> Any:
        """See `Kernels`."""
        return self._kernels.unpacked(codec, tiles, head_dim, are_keys=are_keys)

    def packed_reads(self, codec: KvCodec, head_dim: int) -> PackedReads[Any] | None:
        """See `Kernels`."""
        return self._kernels.packed_reads(codec, head_dim)

    def attend(self, rows: Any, feed: FeedSegments[Any], scaling: float) -> list[Partial[Any]]:
        """Attention to each chunk: to its tiles, or to what they are unpacked to as it is read."""
        head_dim = int(rows.shape[2])
        reads = self._kernels.packed_reads(self._codec, head_dim)
        if reads is not None:
            return reads.attend(rows, feed, scaling)
        unpacked = replace(
            feed,
            keys=Unpacked(self._kernels, self._codec.keys, head_dim, feed.keys, are_keys=True),
            values=Unpacked(
                self._kernels, self._codec.values, head_dim, feed.values, are_keys=False
            ),
        )
        return self._kernels.attend(rows, unpacked, scaling)

    def merged(self, first: Partial[Any], second: Partial[Any]) -> Partial[Any]:
        """See `Kernels`."""
        return self._kernels.merged(first, second)

    def host(self, array: Any) -> Floats:
        """See `Kernels`."""
        return self._kernels.host(array)

    def device(self, numbers: Floats, like: Any) -> Any:
        """See `Kernels`."""
        return self._kernels.device(numbers, like)


class Unpacked(Sequence[Array], Generic[Array]):
    """Packed segments of a layer as products take them: each is unpacked when it is asked for."""

    def __init__(
        self,
        kernels: Kernels[Array],
        codec: Codec,
        head_dim: int,
        tiles: Sequence[Packed],
        *,
        are_keys: bool,
    ) -> None:
        self._kernels = kernels
        self._codec = codec
        self._head_dim = head_dim
        self._tiles = tiles
        self._are_keys = are_keys

    def __len__(self) -> int:
        return len(self._tiles)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...

    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        if isinstance(index, slice):
            return [self._made(tiles) for tiles in self._tiles[index]]
        return self._made(self._tiles[index])

    def _made(self, tiles: Packed) -> Array:
        return self._kernels.unpacked(self._codec, tiles, self._head_dim, are_keys=self._are_keys)


def _tiles(slot: int, count: int) -> slice:
    """The tiles of `count` slots from `slot` on, both multiples of a tile."""
    return slice(slot // TILE, (slot + count) // TILE)
