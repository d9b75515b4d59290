"""The sizes of an evicted store: all that it must know of a verifier it never sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    Raw,
)
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.errors import RestorerRefused

FORMATS = {"float32": "<f4", "bfloat16": "<u2"}
"""Of numbers as they lie in the cache; see `engine.contracts.evicted_store.Raw`."""
VECTOR_FORMAT, VECTOR_ITEM_BYTES = "<f4", 4
# An exponent of ones: infinite, or not a number.
_BFLOAT16_EXPONENT = 0x7F80

ArrayShape: TypeAlias = "tuple[np.dtype[np.generic], tuple[int, ...]]"


@dataclass(frozen=True)
class EvictedShape:
    """What is deposited and asked for in a session's `restored` cache.

    `groups` are those of `KvLayout.groups` that see all of the history, in
    their order; `dtype` is `float32` or `bfloat16`, of the numbers in the cache;
    no position reaches `context_length`. `width` is that of a context vector,
    0 when keys and values are deposited.
    """

    groups: tuple[LayerGroup, ...]
    dtype: str
    sink: int
    window: int
    context_length: int
    width: int = 0

    @property
    def item_bytes(self) -> int:
        """Bytes of a number of keys and values."""
        return np.dtype(FORMATS[self.dtype]).itemsize

    @cached_property
    def bytes_per_position(self) -> int:
        """Bytes that a store keeps of one position: its keys and values in all layers."""
        return sum(group.bytes_per_slot(self.item_bytes) for group in self.groups)

    def layer_bytes_per_position(self, layer: int) -> int:
        """Bytes of the keys and values of one position in one layer."""
        group = self.group_of[layer]
        return group.bytes_per_slot(self.item_bytes) // len(group.layers)

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
        """Format and shape of each array of a deposit of `count` positions."""
        if self.width:
            return ((np.dtype(VECTOR_FORMAT), (count, self.width)),)
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
        axis = 0 if self.width else 3
        count = arrays[0].shape[axis] if arrays and arrays[0].ndim > axis else 0
        expected = self.arrays(count)
        found = tuple((array.dtype, array.shape) for array in arrays)
        if count < 1 or found != expected:
            raise RestorerRefused(f"a deposit of {_shown(found)} is not {_shown(expected)}")
        if not all(map(is_finite, arrays)):
            raise RestorerRefused("a deposit has numbers that are not finite")
        return count

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
        if not asked or asked.start < there.start or asked.stop > there.stop:
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
        end = asked.first + asked.queries.shape[1] - self.window
        if end > max(length, self.sink):
            raise ValueError(f"queries see positions up to {end}, those below {length} are there")


def deposited(evicted: Evicted) -> tuple[Raw, ...]:
    """The arrays of a deposit."""
    return evicted.groups if isinstance(evicted, EvictedKeysValues) else (evicted,)


def is_finite(array: Raw) -> bool:
    """Whether all numbers are finite."""
    if array.dtype == np.uint16:
        exponents = array.view(np.uint16) & _BFLOAT16_EXPONENT
        return not bool((exponents == _BFLOAT16_EXPONENT).any())
    # One call where nearly all are; a sum that overflows proves nothing.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def _shown(found: Sequence[ArrayShape]) -> str:
    return ", ".join(f"{dtype.name} {list(shape)}" for dtype, shape in found[:8])
