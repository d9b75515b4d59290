"""Evicted keys and values as MLX arrays, and attention to them where they lie.

A position's slot is its position, in segments at fixed slots, and every product has
the same number of rows: so the bits of a query's partial attention are a function of
the query, its position and what was deposited. It serves `identity`, in the
verifier's own process.
"""

from __future__ import annotations

from collections import deque

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.mlx_backend.attention import FeedMasks, partial_attention
from kakeya_fleet.engine.backends.mlx_backend.dtypes import from_raw, mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.group_store import GroupStore, MlxPool
from kakeya_fleet.engine.backends.mlx_backend.masks import bias_of
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.positions import ContiguousPlacement, contiguous_placement
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost, RestorerRefused
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots

QUERIES = 16
"""Queries of a head in every product, real ones or not: one shape, one kernel."""


class MlxEvictedStore:
    """What one session has evicted; see `engine.contracts.evicted_store.EvictedStore`."""

    def __init__(self, shape: EvictedShape, spec: RestorerSpec, pool: MlxPool) -> None:
        """An empty store."""
        self._shape = shape
        self._spec = spec
        self._pool = pool
        self._dtype = mlx_dtype(shape.dtype)
        self._placement = contiguous_placement(0)
        self._groups: list[GroupStore] = []
        self._use([GroupStore(group, self._placement, self._dtype, pool) for group in shape.groups])
        self._length = 0
        self._released = False
        self._begun: deque[PartialAttention] = deque()

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """None: it keeps keys and values."""
        return None

    @property
    def length(self) -> int:
        """The positions from `sink` to this are deposited; 0 at first."""
        return self._length

    @property
    def stored_bytes(self) -> int:
        """Bytes of the arrays that keep them; shared ones count too."""
        return sum(slab.nbytes for store in self._groups for slab in store.slabs)

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions `first` onwards; `first` is `max(length, sink)`."""
        self._check_there()
        count = self._shape.check_deposit(evicted)
        if not isinstance(evicted, EvictedKeysValues):
            raise RestorerRefused("context vectors were deposited, and nothing maps them")
        if first != max(self._length, self._shape.sink):
            raise ValueError(
                f"position {first} does not follow {max(self._length, self._shape.sink)}"
            )
        end = first + count
        if end > self._shape.context_length:
            raise RestorerRefused(f"position {end - 1} is beyond {self._shape.context_length}")
        self._grow(end)
        for store, array in zip(self._groups, evicted.groups, strict=True):
            store.put(first, from_raw(array, self._dtype))
        self._length = end

    def begin(self, queries: EvictedQueries) -> None:
        """Attends to all evicted positions that these queries see."""
        self._check_there()
        self._shape.check_queries(queries)
        self._shape.check_deposited(queries, self._length)
        blocks = range(0, queries.queries.shape[1], QUERIES)
        parts = [self._block(queries, row) for row in blocks]
        output, total, maximum = (
            np.concatenate(of_blocks, axis=1) for of_blocks in zip(*parts, strict=True)
        )
        self._begun.append(PartialAttention(output, total, maximum))

    def finish(self) -> PartialAttention:
        """The result of the oldest `begin` that has not been asked for."""
        self._check_there()
        if not self._begun:
            raise ValueError("nothing was begun")
        return self._begun.popleft()

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for."""
        self._begun.clear()

    def fork(self, length: int) -> MlxEvictedStore:
        """A store of the positions below `length` that shares what neither will write."""
        self._check_there()
        forked = MlxEvictedStore(self._shape, self._spec, self._pool)
        kept = min(length, self._length)
        if kept <= self._shape.sink:
            return forked
        placement = contiguous_placement(kept)
        groups: list[GroupStore] = []
        try:
            for store in self._groups:
                groups.append(store.fork(kept, self._length, placement))  # noqa: PERF401
        except BaseException:
            for store in groups:
                store.release()
            raise
        forked._use(groups)
        forked._placement = placement
        forked._length = kept
        return forked

    def release(self) -> None:
        """Gives the memory back."""
        self._begun.clear()
        self._released = True
        for store in self._groups:
            store.release()

    def _use(self, groups: list[GroupStore]) -> None:
        self._groups = groups
        self._places = {
            layer: (store, index)
            for store in groups
            for index, layer in enumerate(store.group.layers)
        }

    def _check_there(self) -> None:
        if self._released:
            raise RestorerLost("the store of what was evicted has been released")

    def _grow(self, end: int) -> None:
        """Room for the positions below `end`, in all groups or in none."""
        if end <= self._placement.slots:
            return
        before: ContiguousPlacement = self._placement
        placement = contiguous_placement(end)
        try:
            for store in self._groups:
                store.resize(placement)
        except BaseException:
            for store in self._groups:
                store.resize(before)
            raise
        self._placement = placement

    def _block(self, asked: EvictedQueries, row: int) -> tuple[Floats, Floats, Floats]:
        """Output, total and maximum of at most `QUERIES` queries from row `row` on."""
        store, index = self._places[asked.layer]
        heads, _, head_dim = asked.queries.shape
        own = asked.queries[:, row : row + QUERIES]
        count = own.shape[1]
        first = asked.first + row
        if first + count - 1 - self._shape.window < self._shape.sink:
            zeros = np.zeros((heads, count, head_dim), np.float32)
            return zeros, zeros[..., :1], np.full((heads, count, 1), NOTHING_SEEN, np.float32)
        padded = np.zeros((heads, QUERIES, head_dim), np.float32)
        padded[:, :count] = own
        rows = mx.array(padded).astype(self._dtype)
        rows = rows.reshape(store.group.shape.kv_heads, -1, head_dim)
        masks = self._masks(store, first, count)
        found = partial_attention(rows, store.read(index, masks), asked.scaling)
        total, output, maximum = (
            np.array(part.reshape(heads, QUERIES, -1)[:, :count]) for part in found
        )
        return output, total, maximum

    def _masks(self, store: GroupStore, first: int, count: int) -> FeedMasks:
        """What `count` queries from position `first` on see; padding rows repeat the last."""
        positions = np.minimum(np.arange(first, first + QUERIES), first + count - 1)
        seen = evicted_slots(self._placement, self._shape.sink, self._shape.window, positions)
        groups = store.group.shape.groups
        used = (range(part.start, min(part.stop, len(seen))) for part in store.chunks)
        return FeedMasks(
            tuple(part for part in used if part),
            tuple(None if part is None else bias_of(part, groups) for part in seen),
        )
