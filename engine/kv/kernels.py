"""The seam between caches and back ends: tensors are touched here, and nowhere above.

Caches and stores know positions, slots, slabs and budgets; a back end's `Kernels`
make segments in its own arrays and compute with them. What a call leaves behind may
wait to be computed; `settle` ends that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, TypeVar

from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.tile import Codec, Packed
from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement
from kakeya_fleet.engine.kv.feed import FeedSegments, Partial
from kakeya_fleet.engine.kv.slot_views import Seen
from kakeya_fleet.engine.kv.slot_writes import Write

MOST_QUERIES = 16
"""Queries of a head in the widest product with evicted keys: a forward of 64 takes four."""

ALL_QUERY_COUNTS = tuple(range(1, MOST_QUERIES + 1))
"""Of products that round alike whatever their rows."""


class Measured(Protocol):
    """What every array says of itself."""

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        ...


Array = TypeVar("Array", bound=Measured)


class Segment(Protocol[Array]):
    """Keys and values of one segment of slots in all layers of a group.

    `layer` counts within the group.
    """

    @property
    def arrays(self) -> Sequence[Array]:
        """All that it holds, each memory once."""
        ...

    @property
    def keys(self) -> Sequence[Array]:
        """By layer, as the back end's products take them. They follow what is written."""
        ...

    @property
    def values(self) -> Sequence[Array]:
        """By layer, [kv_heads, slots, head_dim]. They follow what is written."""
        ...

    def clear(self) -> None:
        """Makes all numbers 0, so that no session meets another's.

        Zeros and not anything: a masked key's weight is 0, and 0 * NaN is NaN.
        """
        ...

    def copy_from(self, other: Self) -> None:
        """Takes the numbers of `other`, in memory of its own."""
        ...

    def fill(self, seed: int) -> None:
        """Random numbers in all slots."""
        ...

    def write(self, layer: int, write: Write, keys: Array, values: Array) -> None:
        """Stores the tokens that `write` takes of keys and values [kv_heads, n, head_dim]."""
        ...

    def put(self, write: Write, numbers: Raw) -> None:
        """Stores what `write` takes of numbers [layers, 2, kv_heads, n, head_dim].

        Where segments are packed, here and below: as `KvCodec` packs them, and whole tiles.
        """
        ...

    def read(self, slot: int, count: int) -> Raw:
        """The numbers [layers, 2, kv_heads, count, head_dim] from `slot` on.

        Perhaps the segment's own, which a later call may change.
        """
        ...

    def read_layer(self, layer: int, slot: int, count: int) -> Raw:
        """One layer's of `read`, [2, kv_heads, count, head_dim]."""
        ...


class PackedReads(Protocol[Array]):
    """Attention to segments of tiles, in few bits as they lie.

    As to the numbers that they stand for, but for the last bits; any count of queries rounds alike.
    """

    def attend(
        self, rows: Array, feed: FeedSegments[Packed], scaling: float
    ) -> list[Partial[Array]]:
        """`Kernels.attend`; the feed's masks have `spans`."""
        ...


class Kernels(Protocol[Array]):
    """A back end's arrays in one number format, and what it computes with them."""

    @property
    def dtype(self) -> str:
        """`float32` or `bfloat16`, of keys and values."""
        ...

    @property
    def item_bytes(self) -> int:
        """Bytes of one of their numbers."""
        ...

    @property
    def packing(self) -> str:
        """Names the codec that packs its segments; empty where numbers lie as they are."""
        ...

    @property
    def memory(self) -> str:
        """Names where its segments lie; empty for the host's. Elsewhere others do not serve."""
        ...

    @property
    def tile(self) -> int:
        """Positions that are written and read together: those of a packed tile, else 1."""
        ...

    def segment_bytes(self, group: LayerGroup, keys: int) -> int:
        """Bytes of a segment of `keys` slots for the layers of `group`."""
        ...

    def segment(self, group: LayerGroup, keys: int) -> Segment[Array]:
        """A segment of `keys` slots for the layers of `group`, all zeros, in memory of its own."""
        ...

    def settle(self, arrays: Iterable[Array]) -> None:
        """Computes what waits to be computed of these, so that any thread may go on."""
        ...

    def biases(self, seen: Sequence[Seen | None], groups: int) -> tuple[Array | None, ...]:
        """What is added to scores of one segment each, for layers of `groups` heads a key.

        0 where a query sees a slot, else minus infinity; None where all is seen.
        """
        ...

    def stacked(
        self, placement: Placement, biases: Sequence[Array | None], groups: int, queries: int
    ) -> Array | None:
        """`engine.kv.feed.Masks.stacked` of these; None where the back end has no use for it."""
        ...

    def query_counts(self, shape: AttentionLayer) -> tuple[int, ...]:
        """Ascending: products of so many queries a head round alike, here and in every thread.

        The last is that of the widest product. Raises `RestorerRefused` where not even
        that one is exact.
        """
        ...

    def rows(self, queries: Floats, kv_heads: int) -> Array:
        """Queries [heads, n, head_dim] as rows [kv_heads, groups * n, head_dim] of a product."""
        ...

    def packed(self, codec: KvCodec, numbers: Raw) -> Packed:
        """Numbers [layers, 2, kv_heads, n, head_dim] in `dtype` as `KvCodec.encode` packs them.

        Raises `CodecRefused` for what it cannot pack.
        """
        ...

    def unpacked(self, codec: Codec, tiles: Packed, head_dim: int, *, are_keys: bool) -> Array:
        """Tiles [kv_heads, n, bytes] as `Segment.keys`, or `values`, has a layer's.

        The numbers are those of `Codec.decode`, rounded to `dtype`.
        """
        ...

    def packed_reads(self, codec: KvCodec, head_dim: int) -> PackedReads[Array] | None:
        """What attends to such packed segments themselves; None where they are unpacked first."""
        ...

    def attend(
        self, rows: Array, feed: FeedSegments[Array], scaling: float
    ) -> list[Partial[Array]]:
        """Attention of `rows` to each chunk of the feed's segments, in ascending order."""
        ...

    def merged(self, first: Partial[Array], second: Partial[Array]) -> Partial[Array]:
        """Attention to the keys of both; it may write over the first.

        Where the second saw nothing the first stays as it is, bit for bit.
        """
        ...

    def host(self, array: Array) -> Floats:
        """The numbers of a float32 array, which must not change while they are read."""
        ...

    def device(self, numbers: Floats, like: Array) -> Array:
        """Numbers as an array of the shape of `like`."""
        ...
