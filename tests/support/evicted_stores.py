"""A naive evicted store in numpy: what every other one must agree with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
    Raw,
)
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import FINE_SEGMENT
from kakeya_fleet.engine.contracts.raw_numbers import as_float32, in_format
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost
from kakeya_fleet.node.roles.archive.opening import Opening

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
SINK, WINDOW = 3, 13


def small_shape(
    dtype: str = "float32",
    sink: int = SINK,
    window: int = WINDOW,
    width: int = 0,
    head_dims: tuple[int, int] = (8, 4),
) -> EvictedShape:
    """Two groups of different heads: layers 0 and 2, and layer 3."""
    groups = (
        LayerGroup((0, 2), AttentionLayer(kv_heads=2, groups=2, head_dim=head_dims[0])),
        LayerGroup((3,), AttentionLayer(kv_heads=1, groups=3, head_dim=head_dims[1])),
    )
    return EvictedShape(groups, dtype, sink, window, 4096, width)


def random_evicted(shape: EvictedShape, count: int, seed: int) -> EvictedKeysValues:
    """Keys and values of `count` positions."""
    rng = np.random.default_rng(seed)
    arrays = []
    codec = shape.kv_codec
    for dtype, sizes in replace(shape, codec="").arrays(count):
        values = rng.standard_normal(sizes, np.float32)
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        numbers: Raw = values if dtype == np.float32 else bits
        arrays.append(numbers if codec is None else codec.encode(as_float32(numbers)))
    return EvictedKeysValues(tuple(arrays))


def part(evicted: EvictedKeysValues, first: int, end: int) -> EvictedKeysValues:
    """Some of the positions of a deposit."""
    return EvictedKeysValues(tuple(array[:, :, :, first:end].copy() for array in evicted.groups))


def random_queries(
    shape: EvictedShape, layer: int, first: int, count: int, seed: int
) -> EvictedQueries:
    """Queries of `count` positions from `first` on."""
    size = (shape.query_heads(layer), count, shape.group_of[layer].shape.head_dim)
    values = np.random.default_rng(seed).standard_normal(size, np.float32)
    return EvictedQueries(layer, first, size[2] ** -0.5, values)


def divided(partial: PartialAttention) -> NDArray[np.float64]:
    """The attention [heads, n, head_dim] that a partial one stands for, 0 where nothing is seen."""
    total = partial.total.astype(np.float64)
    output = partial.output.astype(np.float64)
    return np.divide(output, total, out=np.zeros_like(output), where=total > 0)


def floats(shape: EvictedShape, group: LayerGroup, array: Raw) -> NDArray[np.float32]:
    """What attention meets of a deposit's array of one group."""
    codec = shape.kv_codec
    if codec is None:
        return as_float32(array)
    assert array.dtype == np.uint8
    unpacked = codec.decode(array.view(np.uint8), group.shape.head_dim)
    return as_float32(in_format(unpacked, shape.dtype))


def merged(first: PartialAttention, second: PartialAttention) -> PartialAttention:
    """Attention to what both saw."""
    maximum = np.maximum(first.maximum, second.maximum)
    factors = [np.exp(part.maximum - maximum) for part in (first, second)]
    output, total = (
        sum(
            factor * getattr(part, name)
            for factor, part in zip(factors, (first, second), strict=True)
        )
        for name in ("output", "total")
    )
    return PartialAttention(output, total, maximum)


@dataclass
class NaiveEvictedStore:
    """Keeps arrays, attends in float64, one query at a time."""

    shape: EvictedShape
    spec: RestorerSpec = ARCHIVE
    limit_bytes: int | None = None
    origin: int = 0
    completed: bool = False
    _parts: list[EvictedKeysValues] = field(default_factory=list)
    _length: int = 0
    _begun: deque[EvictedQueries] = field(default_factory=deque)
    _released: bool = False

    @property
    def encoder(self) -> None:
        return None

    @property
    def length(self) -> int:
        return self._length

    @property
    def stored_bytes(self) -> int:
        return sum(array.nbytes for kept in self._parts for array in kept.groups)

    def deposit(self, first: int, evicted: Evicted) -> None:
        self._check()
        count = self.shape.check_deposit(evicted)
        if first != self._next or self.completed:
            raise ValueError(f"position {first} does not follow {self._length}")
        assert isinstance(evicted, EvictedKeysValues)
        added = sum(array.nbytes for array in evicted.groups)
        if self.limit_bytes is not None and self.stored_bytes + added > self.limit_bytes:
            raise OutOfKvMemory("the store is full", needed_bytes=str(added), free_bytes="0")
        self._parts.append(EvictedKeysValues(tuple(array.copy() for array in evicted.groups)))
        self._length = first + count

    def begin(self, queries: EvictedQueries) -> None:
        self._check()
        self.shape.check_queries(queries)
        if not self.completed:
            self.shape.check_deposited(queries, self._next)
        self._begun.append(queries)

    def finish(self, carry: PartialAttention | None = None) -> PartialAttention:
        self._check()
        found = self._attend(self._begun.popleft())
        return found if carry is None else merged(carry, found)

    def reserve(self, end: int) -> None:
        self._check()
        needed = (end - self._first) * self.shape.bytes_per_position
        if self.limit_bytes is not None and needed > self.limit_bytes:
            raise OutOfKvMemory("no room", needed_bytes=str(needed), free_bytes="0")

    def complete(self) -> None:
        self._check()
        if self._length % FINE_SEGMENT or self._length <= self.origin:
            raise ValueError(f"a range does not end at {self._length}")
        self.completed = True

    def kept(self, layer: int, first: int, end: int) -> EvictedKeysValues:
        self._check()
        self.shape.check_kept(layer, range(first, end), range(self._first, self._length))
        group = self.shape.group_of[layer]
        own = self._joined().groups[self.shape.groups.index(group)]
        index = group.layers.index(layer)
        whole = EvictedKeysValues((own[index : index + 1],))
        kept = self.shape.part(whole, first - self._first, end - self._first)
        assert isinstance(kept, EvictedKeysValues)
        return kept

    def abandon(self) -> None:
        self._begun.clear()

    def fork(self, length: int) -> NaiveEvictedStore:
        self._check()
        forked = NaiveEvictedStore(self.shape, self.spec, self.limit_bytes, self.origin)
        kept = max(0, min(length // self.shape.tile * self.shape.tile, self._length) - self._first)
        if kept:
            whole = self.shape.part(self._joined(), 0, kept)
            assert isinstance(whole, EvictedKeysValues)
            forked._parts = [whole]
            forked._length = self._first + kept
            forked.completed = self.completed and length >= self._length
        return forked

    def release(self) -> None:
        self._released = True
        self._parts.clear()

    @property
    def _first(self) -> int:
        return max(self.origin, self.shape.sink)

    @property
    def _next(self) -> int:
        return max(self._length, self._first)

    def _check(self) -> None:
        if self._released:
            raise RestorerLost("the store was released")

    def _joined(self) -> EvictedKeysValues:
        groups = zip(*(kept.groups for kept in self._parts), strict=True)
        return EvictedKeysValues(tuple(np.concatenate(group, axis=3) for group in groups))

    def _attend(self, asked: EvictedQueries) -> PartialAttention:
        heads, count, head_dim = asked.queries.shape
        output = np.zeros((heads, count, head_dim), np.float32)
        total = np.zeros((heads, count, 1), np.float32)
        maximum = np.full((heads, count, 1), NOTHING_SEEN, np.float32)
        group = self.shape.group_of[asked.layer]
        index = self.shape.groups.index(group)
        kept = floats(self.shape, group, self._joined().groups[index]) if self._parts else None
        for row in range(count):
            seen = min(self._length, self.shape.evicted_end(asked.first + row)) - self._first
            if kept is None or seen < 1:
                continue
            keys, values = kept[group.layers.index(asked.layer)].astype(np.float64)
            for head in range(heads):
                own = head // group.shape.groups
                scores = keys[own, :seen] @ asked.queries[head, row].astype(np.float64)
                scores *= asked.scaling
                weights = np.exp(scores - scores.max())
                maximum[head, row] = scores.max()
                total[head, row] = weights.sum()
                output[head, row] = weights @ values[own, :seen]
        return PartialAttention(output, total, maximum)


class NaiveStores:
    """A node's stores, each of which is naive, under one budget of bytes."""

    arithmetic = "naive"

    def __init__(self, budget_bytes: int) -> None:
        self._stores: list[NaiveEvictedStore] = []
        self.budget_bytes = budget_bytes

    @property
    def used_bytes(self) -> int:
        return sum(store.stored_bytes for store in self._stores)

    def check(self, opening: Opening) -> None:
        return

    def make(self, opening: Opening) -> NaiveEvictedStore:
        store = NaiveEvictedStore(
            opening.shape, limit_bytes=self.budget_bytes, origin=opening.first_position
        )
        self._stores.append(store)
        return store
