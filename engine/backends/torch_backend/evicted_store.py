"""Evicted keys and values as torch tensors, and attention to them where they lie.

A position's slot is its position, in segments at fixed slots, and every product
has a number of rows with which all round alike: so the bits of a query's partial
attention are a function of the query, its position and what was deposited. It
needs no model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.backends.torch_backend.dtypes import from_raw, torch_dtype
from engine.backends.torch_backend.group_store import GroupStore, TorchPool
from engine.backends.torch_backend.masks import bias_of, cut
from engine.backends.torch_backend.product_rows import MOST_QUERIES, query_counts
from engine.backends.torch_backend.segment_products import Masks, partial_attention
from engine.errors import RestorerLost, RestorerRefused
from engine.features import FeatureEncoder
from engine.positions import contiguous_placement
from engine.restoration.contract import (
    NOTHING_SEEN,
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from engine.restoration.evicted_slots import evicted_slots
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerSpec
from engine.slot_writes import writes

REMEMBERED_MASKS = 8
"""Products of one forward whose masks its layers share."""

Restoring = Callable[[int, Evicted], list[Tensor]]
"""Keys and values [layers, 2, kv_heads, n, head_dim] of each group, from what was
deposited of positions from the first argument on. Raises `RestorerRefused`.
"""


class TorchEvictedStore:
    """What one session has evicted; see `engine.restoration.contract.EvictedStore`."""

    def __init__(
        self,
        shape: EvictedShape,
        spec: RestorerSpec,
        pool: TorchPool,
        *,
        restoring: Restoring | None = None,
        encoder: FeatureEncoder | None = None,
    ) -> None:
        """An empty store. `restoring` makes keys and values of context vectors."""
        self._shape = shape
        self._spec = spec
        self._pool = pool
        self._restoring = restoring
        self._encoder = encoder
        self._dtype = torch_dtype(shape.dtype)
        self._placement = contiguous_placement(0)
        self._groups: list[GroupStore] = []
        self._use(
            [GroupStore.take(group, self._placement, self._dtype, pool) for group in shape.groups]
        )
        self._length = 0
        self._released = False
        self._begun: deque[PartialAttention] = deque()
        self._masks: dict[tuple[int, int, int], Masks] = {}
        """Of the forward under way, whose layers see the same positions; good for ever."""

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors of `projection`; None for the others."""
        return self._encoder

    @property
    def length(self) -> int:
        """The positions from `sink` to this are deposited; 0 at first."""
        return self._length

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them; shared ones count too."""
        return sum(slab.nbytes for store in self._groups for slab in store.slabs)

    @torch.inference_mode()
    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions `first` onwards; `first` is `max(length, sink)`."""
        self._check_there()
        count = self._shape.check_deposit(evicted)
        end = first + count
        if first != max(self._length, self._shape.sink):
            raise ValueError(
                f"position {first} does not follow {max(self._length, self._shape.sink)}"
            )
        if end > self._shape.context_length:
            raise RestorerRefused(f"position {end - 1} is beyond {self._shape.context_length}")
        numbers = self._numbers(first, evicted)
        self._grow(end)
        for store, own in zip(self._groups, numbers, strict=True):
            store.make_writable(writes(self._placement, first, count))
            store.put(first, own)
        self._length = end

    @torch.inference_mode()
    def begin(self, queries: EvictedQueries) -> None:
        """Attends to all evicted positions that these queries see."""
        self._check_there()
        self._shape.check_queries(queries)
        self._shape.check_deposited(queries, self._length)
        self._begun.append(self._attention(queries))

    def finish(self) -> PartialAttention:
        """The result of the oldest `begin` that has not been asked for."""
        self._check_there()
        if not self._begun:
            raise ValueError("nothing was begun")
        return self._begun.popleft()

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for."""
        self._begun.clear()

    def fork(self, length: int) -> TorchEvictedStore:
        """A store of the positions below `length` that shares what neither will write."""
        self._check_there()
        forked = TorchEvictedStore(
            self._shape, self._spec, self._pool, restoring=self._restoring, encoder=self._encoder
        )
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
        self._released = True
        self._begun.clear()
        self._masks.clear()
        for store in self._groups:
            store.release()

    def _use(self, groups: list[GroupStore]) -> None:
        self._groups = groups
        self._places = {
            layer: (store, index, query_counts(store.group.shape, self._dtype))
            for store in groups
            for index, layer in enumerate(store.group.layers)
        }

    def _check_there(self) -> None:
        if self._released:
            raise RestorerLost("the store of what was evicted has been released")

    def _numbers(self, first: int, evicted: Evicted) -> Sequence[Tensor]:
        if self._restoring is not None:
            return self._restoring(first, evicted)
        if not isinstance(evicted, EvictedKeysValues):
            raise RestorerRefused("context vectors were deposited, and nothing maps them")
        return [from_raw(array, self._dtype) for array in evicted.groups]

    def _grow(self, end: int) -> None:
        """Room for the positions below `end`, in all groups or in none."""
        if end <= self._placement.slots:
            return
        before, placement = self._placement, contiguous_placement(end)
        try:
            for store in self._groups:
                store.resize(placement)
        except BaseException:
            for store in self._groups:
                store.resize(before)
            raise
        self._placement = placement

    def _attention(self, asked: EvictedQueries) -> PartialAttention:
        count = asked.queries.shape[1]
        parts = [
            self._block(asked, row, min(MOST_QUERIES, count - row))
            for row in range(0, count, MOST_QUERIES)
        ]
        if len(parts) == 1:
            return PartialAttention(*parts[0])
        output, total, maximum = (
            np.concatenate(of_blocks, axis=1) for of_blocks in zip(*parts, strict=True)
        )
        return PartialAttention(output, total, maximum)

    def _block(self, asked: EvictedQueries, row: int, count: int) -> tuple[Floats, Floats, Floats]:
        """Output, total and maximum of `count` <= `MOST_QUERIES` queries from row `row` on."""
        store, index, counts = self._places[asked.layer]
        heads, _, head_dim = asked.queries.shape
        first = asked.first + row
        if first + count - 1 - self._shape.window < self._shape.sink:
            nothing = np.full((heads, count, 1), NOTHING_SEEN, np.float32)
            zeros = np.zeros((heads, count, head_dim), np.float32)
            return zeros, zeros[:, :, :1].copy(), nothing
        masks = self._masks_of(first, count, counts[bisect_left(counts, count)])
        # In memory of torch's own, aligned as products elsewhere are.
        padded = torch.zeros(heads, masks.queries, head_dim)
        padded.numpy()[:, :count] = asked.queries[:, row : row + count]
        if self._dtype is not torch.float32:
            padded = padded.to(self._dtype)
        rows = padded.view(store.group.shape.kv_heads, -1, head_dim)
        sums, output, maximum = partial_attention(rows, store.read(index, masks), asked.scaling)
        return (
            output.numpy().reshape(heads, masks.queries, head_dim)[:, :count],
            sums.numpy().reshape(heads, masks.queries, 1)[:, :count],
            maximum.numpy().reshape(heads, masks.queries, 1)[:, :count],
        )

    def _masks_of(self, first: int, count: int, queries: int) -> Masks:
        """What `count` queries from position `first` on see, for products of `queries`."""
        masks = self._masks.get((first, count, queries))
        if masks is None:
            # Rows beyond the real ones repeat the last position.
            positions = np.minimum(np.arange(first, first + queries), first + count - 1)
            seen = evicted_slots(self._placement, self._shape.sink, self._shape.window, positions)
            masks = Masks(
                first_row=0,
                count=count,
                queries=queries,
                chunks=cut(self._groups[0].chunks, len(seen)),
                biases=tuple(None if part is None else bias_of(part) for part in seen),
            )
            if len(self._masks) == REMEMBERED_MASKS:
                self._masks.clear()
            self._masks[first, count, queries] = masks
        return masks
