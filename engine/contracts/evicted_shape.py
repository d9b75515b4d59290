"""The sizes of an evicted store: all that it must know of a verifier it never sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    Raw,
)
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.contracts.positions import evicted_end
from kakeya_fleet.engine.contracts.raw_numbers import FORMATS, is_finite
from kakeya_fleet.engine.errors import RestorerRefused

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Packed

VECTOR_FORMAT, VECTOR_ITEM_BYTES = "<f4", 4

ArrayShape: TypeAlias = "tuple[np.dtype[np.generic], tuple[int, ...]]"


@dataclass(frozen=True)
class EvictedShape:
    """What is deposited and asked for in a session's `restored` cache.

    `groups` are those of `KvLayout.groups` that see all of the history, in
    their order; `dtype` is `float32` or `bfloat16`, of the numbers in the cache;
    no position reaches `context_length`. `width` is that of a context vector,
    0 when keys and values are deposited; `codec` names what packs those, empty for
    none. Positions are packed, and deposited, in tiles, of which `sink` is a multiple.
    """

    groups: tuple[LayerGroup, ...]
    dtype: str
    sink: int
    window: int
    context_length: int
    width: int = 0
    codec: str = ""

    @property
    def tile(self) -> int:
        """Positions that are deposited together."""
        return TILE if self.codec else 1

    @cached_property
    def kv_codec(self) -> KvCodec | None:
        """What packs keys and values. Raises `CodecRefused` for a name that is not known."""
        return codec_named(self.codec) if self.codec else None

    def evicted_end(self, query: int) -> int:
        """The positions below this are none that the query sees in the window."""
        return evicted_end(query, self.window, self.tile)

    @property
    def item_bytes(self) -> int:
        """Bytes of a number of keys and values."""
        return np.dtype(FORMATS[self.dtype]).itemsize

    @cached_property
    def bytes_per_position(self) -> int:
        """Bytes that a store keeps of one position: its keys and values in all layers.

        Of packed ones a tile's share, rounded up.
        """
        return -(-sum(self._tile_bytes(group) for group in self.groups) // self.tile)

    @property
    def saved_bytes_per_position(self) -> int:
        """Bytes that packing saves of one position; 0 without."""
        plain = sum(group.bytes_per_slot(self.item_bytes) for group in self.groups)
        return plain - self.bytes_per_position if self.codec else 0

    def layer_bytes_per_position(self, layer: int) -> int:
        """Bytes of the keys and values of one position in one layer, rounded up."""
        group = self.group_of[layer]
        return -(-self._tile_bytes(group) // len(group.layers) // self.tile)

    @property
    def deposited_bytes_per_position(self) -> int:
        """Bytes that a deposit has of one position."""
        return self.width * VECTOR_ITEM_BYTES if self.width else self.bytes_per_position

    @cached_property
    def group_of(self) -> dict[int, LayerGroup]:
        """The group of each layer that can be asked for."""
        return {layer: group for group in self.groups for layer in group.layers}

    def query_heads(self, layer: int) -> int:
        """Query heads of a layer."""
        shape = self.group_of[layer].shape
        return shape.kv_heads * shape.groups

    def arrays(self, count: int) -> tuple[ArrayShape, ...]:
        """Format and shape of each array of a deposit of `count` positions, whole tiles."""
        if self.width:
            return ((np.dtype(VECTOR_FORMAT), (count, self.width)),)
        codec = self.kv_codec
        if codec is not None:
            tiles = count // self.tile
            return tuple(
                (
                    np.dtype(np.uint8),
                    (
                        len(group.layers),
                        1,
                        group.shape.kv_heads,
                        tiles,
                        codec.tile_bytes(group.shape.head_dim),
                    ),
                )
                for group in self.groups
            )
        return tuple(
            (
                np.dtype(FORMATS[self.dtype]),
                (len(group.layers), 2, group.shape.kv_heads, count, group.shape.head_dim),
            )
            for group in self.groups
        )

    def check_deposit(self, evicted: Evicted) -> int:
        """The positions of a deposit. Raises `RestorerRefused` for shape, format or values."""
        if isinstance(evicted, EvictedKeysValues) is bool(self.width):
            raise RestorerRefused(
                "keys and values were deposited where context vectors are kept, or the reverse"
            )
        arrays = deposited(evicted)
        count = self.count_of(evicted)
        expected = self.arrays(count)
        found = tuple((array.dtype, array.shape) for array in arrays)
        if count < 1 or found != expected:
            raise RestorerRefused(f"a deposit of {_shown(found)} is not {_shown(expected)}")
        codec = self.kv_codec
        if codec is not None:
            self._check_packed(codec, arrays)
        elif not all(map(is_finite, arrays)):
            raise RestorerRefused("a deposit has numbers that are not finite")
        return count

    def count_of(self, evicted: Evicted) -> int:
        """The positions of a deposit, whose shape nobody need have checked."""
        arrays, axis = deposited(evicted), 3 if isinstance(evicted, EvictedKeysValues) else 0
        return arrays[0].shape[axis] * self.tile if arrays and arrays[0].ndim > axis else 0

    def part(self, evicted: Evicted, first: int, end: int) -> Evicted:
        """Positions `first` to `end`, exclusive, of a deposit: whole tiles, contiguous."""
        if not isinstance(evicted, EvictedKeysValues):
            return np.ascontiguousarray(evicted[first:end])
        low, high = first // self.tile, end // self.tile
        return EvictedKeysValues(
            tuple(
                cast("Raw", np.ascontiguousarray(array[:, :, :, low:high]))
                for array in evicted.groups
            )
        )

    def check_queries(self, asked: EvictedQueries) -> None:
        """Raises `RestorerRefused` for a layer, shape, format or values that cannot be asked."""
        group = self.group_of.get(asked.layer)
        if group is None:
            raise RestorerRefused(f"layer {asked.layer} keeps nothing of what was evicted")
        values = asked.queries
        head_dim = group.shape.head_dim
        heads = group.shape.kv_heads * group.shape.groups
        if values.ndim != 3 or values.shape[::2] != (heads, head_dim) or not values.size:
            raise RestorerRefused(f"queries {list(values.shape)} are not [{heads}, n, {head_dim}]")
        end = asked.first + values.shape[1]
        if values.dtype != np.float32 or not 0 <= asked.first < end <= self.context_length:
            raise RestorerRefused(
                f"queries of {values.dtype} at {asked.first} to {end} are not float32 at positions"
                f" below {self.context_length}"
            )
        if not (math.isfinite(asked.scaling) and is_finite(values)):
            raise RestorerRefused("queries have numbers that are not finite")
        if asked.scaling <= 0.0:
            raise RestorerRefused(f"scores are multiplied by {asked.scaling}, not above 0")

    def check_kept(self, layer: int, asked: range, there: range) -> None:
        """Raises `RestorerRefused` when `asked` of a layer are no positions of those `there`."""
        if layer not in self.group_of:
            raise RestorerRefused(f"layer {layer} keeps nothing of what was evicted")
        cut = asked.start % self.tile or asked.stop % self.tile
        if not asked or cut or asked.start < there.start or asked.stop > there.stop:
            raise RestorerRefused(
                f"positions {asked.start} to {asked.stop} are not among the {there.start} to"
                f" {there.stop} that are kept"
            )

    def layer_shape(self, layer: int) -> EvictedShape:
        """That of one layer's keys and values alone."""
        group = LayerGroup((layer,), self.group_of[layer].shape)
        return replace(self, groups=(group,), width=0)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """All layers that can be asked for, as deposits have them."""
        return tuple(layer for group in self.groups for layer in group.layers)

    def check_deposited(self, asked: EvictedQueries, length: int) -> None:
        """Raises `ValueError` when queries see an evicted position from `length` on."""
        end = self.evicted_end(asked.first + asked.queries.shape[1] - 1)
        if end > max(length, self.sink):
            raise ValueError(f"queries see positions up to {end}, those below {length} are there")

    def _tile_bytes(self, group: LayerGroup) -> int:
        """Bytes of the keys and values of one tile, or position, in all layers of a group."""
        codec = self.kv_codec
        if codec is None:
            return group.bytes_per_slot(self.item_bytes)
        shape = group.shape
        return len(group.layers) * shape.kv_heads * codec.tile_bytes(shape.head_dim)

    def _check_packed(self, codec: KvCodec, arrays: Sequence[Raw]) -> None:
        """Raises `RestorerRefused` for bytes that are no tiles of the codec."""
        for group, array in zip(self.groups, arrays, strict=True):
            try:
                codec.check(cast("Packed", array), group.shape.head_dim)
            except CodecRefused as refused:
                raise RestorerRefused(f"a deposit is refused: {refused}") from refused


def deposited(evicted: Evicted) -> tuple[Raw, ...]:
    """The arrays of a deposit."""
    return evicted.groups if isinstance(evicted, EvictedKeysValues) else (evicted,)


def _shown(found: Sequence[ArrayShape]) -> str:
    return ", ".join(f"{dtype.name} {list(shape)}" for dtype, shape in found[:8])
