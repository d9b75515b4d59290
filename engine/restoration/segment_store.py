"""Evicted keys and values in segments of slots, and attention to them where they lie.

Positions lie in segments at fixed borders, and every product has a number of rows
with which all round alike: so the bits of a query's partial attention are a
function of the query, its position and what was deposited. One that keeps a later
range of positions has the segments and the chunks that one of all positions has
there. It needs no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Generic

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
    Raw,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, contiguous_placement
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost, RestorerRefused
from kakeya_fleet.engine.kv.feed import FeedSegments
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.kernels import Array, Kernels
from kakeya_fleet.engine.kv.slot_writes import writes
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool
from kakeya_fleet.engine.restoration.carried_blocks import CarriedBlock, CarriedQueries
from kakeya_fleet.engine.restoration.evicted_blocks import (
    BlockMasks,
    BlockPartial,
    block_partial,
    blocks,
    joined_blocks,
    nothing_seen,
    padded_rows,
)

MOST_CARRIED_BYTES = 1 << 30
"""Of one question to a later range: what each chunk found waits for what is carried there."""

Restoring = Callable[[int, Evicted], Sequence[Raw]]
"""Keys and values [layers, 2, kv_heads, n, head_dim] of each group, from what was
deposited of positions from the first argument on. Raises `RestorerRefused`.
"""


class SegmentStore(Generic[Array]):
    """What one session has evicted; see `engine.contracts.evicted_store.EvictedStore`."""

    def __init__(
        self,
        shape: EvictedShape,
        spec: RestorerSpec,
        kernels: Kernels[Array],
        pool: SlabPool[Any],
        *,
        restoring: Restoring | None = None,
        encoder: FeatureEncoder | None = None,
        origin: int = 0,
        chunk_keys: int = CHUNK_KEYS,
    ) -> None:
        """An empty store of the positions from `origin` on.

        `restoring` makes keys and values of context vectors. `chunk_keys`, a multiple
        of `COARSE_SEGMENT`, is the same in all stores that share a session. Raises
        `RestorerRefused` for an origin that is not a multiple of it, and where products
        are not exact.
        """
        if not 0 <= origin < shape.context_length or origin % chunk_keys:
            raise RestorerRefused(
                f"a range of positions begins at a multiple of {chunk_keys} below"
                f" {shape.context_length}, not at {origin}"
            )
        self._origin = origin
        self._chunk_keys = chunk_keys
        self._completed = False
        for group in shape.groups:
            # What cannot be exact here is refused before anything is kept.
            kernels.query_counts(group.shape)
        self._shape = shape
        self._spec = spec
        self._kernels = kernels
        self._pool = pool
        self._restoring = restoring
        self._encoder = encoder
        self._placement = contiguous_placement(origin, origin)
        self._groups: list[GroupStore[Array]] = []
        self._use(
            [GroupStore.take(group, self._placement, kernels, pool) for group in shape.groups]
        )
        self._length = 0
        self._released = False
        self._begun: deque[PartialAttention | CarriedQueries[Array]] = deque()
        self._masks = BlockMasks(shape, kernels, chunk_keys)

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors of `projection`; None for the others."""
        return self._encoder

    @property
    def origin(self) -> int:
        """The first position of its range."""
        return self._origin

    @property
    def length(self) -> int:
        """The positions of the range up to this are deposited; 0 at first."""
        return self._length

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them; shared ones count too."""
        return sum(slab.nbytes for slab in self.slabs)

    @property
    def slabs(self) -> list[Slab[Any]]:
        """What it holds of the pool."""
        return [slab for store in self._groups for slab in store.slabs]

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when it is released now."""
        return sum(store.freed_bytes for store in self._groups)

    @property
    def slots(self) -> int:
        """The positions of the range below this have their memory."""
        return self._origin + self._placement.slots

    def growth_bytes(self, end: int) -> int:
        """Bytes that `reserve(end)` takes."""
        segments = contiguous_placement(max(end, self.slots), self._origin).segments
        return sum(store.missing_bytes(segments) for store in self._groups)

    def store(self, group: LayerGroup) -> GroupStore[Array]:
        """The slabs of the layers of `group`, for kernels that read them by themselves."""
        return self._places[group.layers[0]][0]

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions `first` onwards; `first` is `max(length, origin, sink)`."""
        self._check_there()
        count = self._shape.check_deposit(evicted)
        end = first + count
        if first != self._next:
            raise ValueError(f"position {first} does not follow {self._next}")
        if self._completed:
            raise ValueError(f"position {first} is behind the range, which is complete")
        if end > self._shape.context_length:
            raise RestorerRefused(f"position {end - 1} is beyond {self._shape.context_length}")
        numbers = self._numbers(first, evicted)
        self._grow(end)
        for store, own in zip(self._groups, numbers, strict=True):
            store.make_writable(writes(self._placement, first, count))
            store.put(first, own)
        self._length = end

    def reserve(self, end: int) -> None:
        """Takes the memory for the positions below `end`."""
        self._check_there()
        if self._completed or not self._origin < end <= self._shape.context_length:
            raise RestorerRefused(f"no room is kept for positions up to {end} here")
        self._grow(end)

    def complete(self) -> None:
        """Ends the range where the positions that are deposited end."""
        self._check_there()
        if self._length <= self._origin or self._length % self._chunk_keys:
            raise ValueError(f"a range does not end at {self._length}, between two chunks")
        placement = contiguous_placement(self._length, self._origin)
        for store in self._groups:
            store.resize(placement)
        self._placement = placement
        self._completed = True

    def begin(self, queries: EvictedQueries) -> None:
        """Attends to the positions here that these queries see."""
        self._check_there()
        self._shape.check_queries(queries)
        if not self._completed:
            self._shape.check_deposited(queries, self._next)
        found = self._carried(queries) if self._origin else self._attention(queries)
        self._begun.append(found)

    def finish(self, carry: PartialAttention | None = None) -> PartialAttention:
        """The result of the oldest `begin` that has not been asked for, on top of `carry`."""
        self._check_there()
        if not self._begun:
            raise ValueError("nothing was begun")
        found = self._begun.popleft()
        if isinstance(found, CarriedQueries):
            return found.summed(carry)
        if carry is not None:
            raise ValueError("nothing is carried to the first range")
        return found

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for."""
        self._begun.clear()

    def kept(self, layer: int, first: int, end: int) -> EvictedKeysValues:
        """A copy of one layer's keys and values, as a deposit of `EvictedShape.layer_shape`."""
        self._check_there()
        self._shape.check_kept(layer, range(first, end), range(self._first, self._length))
        store, index = self._places[layer]
        return EvictedKeysValues((store.layer_positions(index, first, end)[None],))

    def fork(self, length: int) -> SegmentStore[Array]:
        """A store of the positions below `length` that shares what neither will write."""
        self._check_there()
        forked = SegmentStore(
            self._shape,
            self._spec,
            self._kernels,
            self._pool,
            restoring=self._restoring,
            encoder=self._encoder,
            origin=self._origin,
            chunk_keys=self._chunk_keys,
        )
        kept = self._kept_of(length)
        if not kept:
            return forked
        placement = contiguous_placement(kept, self._origin)
        groups: list[GroupStore[Array]] = []
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
        forked._completed = self._completed and kept == self._length
        return forked

    def fork_bytes(self, length: int, end: int = 0) -> int:
        """Bytes of `fork(length)`, for copies of what either will write, and `reserve(end)`."""
        kept = self._kept_of(length)
        placement = contiguous_placement(max(kept, self._origin), self._origin)
        more = contiguous_placement(max(end, self._origin), self._origin).segments
        taken = sum(
            self._kernels.segment_bytes(store.group, keys)
            for store in self._groups
            for keys in more[len(placement.segments) :]
        )
        if not kept:
            return taken
        shared = (store.fork_bytes(kept, self._length, placement) for store in self._groups)
        return taken + sum(shared)

    def release(self) -> None:
        """Gives the memory back."""
        self._begun.clear()
        self._masks.clear()
        self._released = True
        for store in self._groups:
            store.release()

    def _use(self, groups: list[GroupStore[Array]]) -> None:
        self._groups = groups
        self._places = {
            layer: (store, index)
            for store in groups
            for index, layer in enumerate(store.group.layers)
        }

    @property
    def _next(self) -> int:
        """The position that is deposited next."""
        return max(self._length, self._first)

    @property
    def _first(self) -> int:
        """The first position that is deposited."""
        return max(self._origin, self._shape.sink)

    def _kept_of(self, length: int) -> int:
        """The positions that a fork of `length` has here, up to this; 0 for none."""
        tile = self._shape.tile
        kept = min(length // tile * tile, self._length)
        return kept if kept > self._first else 0

    def _check_there(self) -> None:
        if self._released:
            raise RestorerLost("the store of what was evicted has been released")

    def _numbers(self, first: int, evicted: Evicted) -> Sequence[Raw]:
        if self._restoring is not None:
            return self._restoring(first, evicted)
        if not isinstance(evicted, EvictedKeysValues):
            raise RestorerRefused("context vectors were deposited, and nothing maps them")
        return evicted.groups

    def _grow(self, end: int) -> None:
        """Room for the positions below `end`, in all groups or in none."""
        if end <= self.slots:
            return
        before, placement = self._placement, contiguous_placement(end, self._origin)
        missing = sum(store.missing_bytes(placement.segments) for store in self._groups)
        with self._pool.claimed(missing) as claim:
            try:
                for store in self._groups:
                    store.resize(placement, claim)
            except BaseException:
                for store in self._groups:
                    store.resize(before)
                raise
        self._placement = placement

    def _attention(self, asked: EvictedQueries) -> PartialAttention:
        return joined_blocks(
            [self._block(asked, row, count) for row, count in blocks(asked.queries.shape[1])]
        )

    def _block(self, asked: EvictedQueries, row: int, count: int) -> BlockPartial:
        """The attention of `count` <= `MOST_QUERIES` queries from row `row` on."""
        heads, _, head_dim = asked.queries.shape
        product = self._product(asked, row, count)
        if product is None:
            return nothing_seen(heads, count, head_dim)
        rows, feed = product
        found = reduce(self._kernels.merged, self._kernels.attend(rows, feed, asked.scaling))
        return block_partial(self._kernels, found, heads, feed.masks.queries, count)

    def _carried(self, asked: EvictedQueries) -> CarriedQueries[Array]:
        """The attention to each chunk, for what is carried here later."""
        heads, queries, head_dim = asked.queries.shape
        chunk_count = -(-self._placement.slots // self._chunk_keys)
        if chunk_count * asked.queries.nbytes > MOST_CARRIED_BYTES:
            raise RestorerRefused(f"{queries} queries at once to {chunk_count} chunks are too many")
        found: list[CarriedBlock[Array]] = []
        for row, count in blocks(queries):
            product = self._product(asked, row, count)
            if product is None:
                found.append(CarriedBlock(row, count, count, deque()))
                continue
            rows, feed = product
            partials = deque(self._kernels.attend(rows, feed, asked.scaling))
            found.append(CarriedBlock(row, count, feed.masks.queries, partials))
        return CarriedQueries(self._kernels, tuple(found), heads, queries, head_dim)

    def _product(
        self, asked: EvictedQueries, row: int, count: int
    ) -> tuple[Array, FeedSegments[Array]] | None:
        """Rows and segments of `count` <= `MOST_QUERIES` queries; None when they see nothing."""
        store, index = self._places[asked.layer]
        shape = store.group.shape
        # Those of the thread that attends, which may be another than the maker's.
        counts = self._kernels.query_counts(shape)
        masks = self._masks.of(self._placement, shape.groups, asked.first + row, count, counts)
        if masks is None:
            return None
        rows = padded_rows(self._kernels, asked, row, count, masks.queries, shape.kv_heads)
        return rows, store.feed(index, masks)
