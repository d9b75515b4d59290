"""Blocks of queries that attend to evicted keys: how they are cut, padded and masked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Generic

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, ContiguousPlacement
from kakeya_fleet.engine.kv.chunks import chunks, cut
from kakeya_fleet.engine.kv.feed import Masks, Partial
from kakeya_fleet.engine.kv.kernels import MOST_QUERIES, Array, Kernels
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots, seen_spans

REMEMBERED_MASKS = 8
"""Products of one forward whose masks its layers share."""

BlockPartial = tuple[Floats, Floats, Floats]
"""Output, total and maximum of the real queries of a block."""


def blocks(count: int) -> list[tuple[int, int]]:
    """First rows and counts of the products that `count` queries take."""
    return [(row, min(MOST_QUERIES, count - row)) for row in range(0, count, MOST_QUERIES)]


def joined_blocks(parts: Sequence[BlockPartial]) -> PartialAttention:
    """The attention of all queries, from that of their blocks."""
    if len(parts) == 1:
        return PartialAttention(*parts[0])
    output, total, maximum = (
        np.concatenate(of_blocks, axis=1) for of_blocks in zip(*parts, strict=True)
    )
    return PartialAttention(output, total, maximum)


def nothing_seen(heads: int, count: int, head_dim: int) -> BlockPartial:
    """Of queries that see nothing that was evicted."""
    zeros = np.zeros((heads, count, head_dim), np.float32)
    return zeros, zeros[:, :, :1].copy(), np.full((heads, count, 1), NOTHING_SEEN, np.float32)


def padded_rows(
    kernels: Kernels[Array],
    asked: EvictedQueries,
    row: int,
    count: int,
    queries: int,
    kv_heads: int,
) -> Array:
    """The queries from `row` on as rows [kv_heads, groups * queries, head_dim] of a product."""
    heads, _, head_dim = asked.queries.shape
    own = asked.queries[:, row : row + count]
    if count == queries:
        return kernels.rows(np.ascontiguousarray(own, np.float32), kv_heads)
    padded = np.zeros((heads, queries, head_dim), np.float32)
    padded[:, :count] = own
    return kernels.rows(padded, kv_heads)


def block_partial(
    kernels: Kernels[Array], found: Partial[Array], heads: int, queries: int, count: int
) -> BlockPartial:
    """What products found, without the padding rows."""
    total, output, maximum = (
        kernels.host(part).reshape(heads, queries, -1)[:, :count] for part in found
    )
    return output, total, maximum


class BlockMasks(Generic[Array]):
    """What blocks of queries see of the slots of a store; the layers of a forward share it."""

    def __init__(
        self, shape: EvictedShape, kernels: Kernels[Array], chunk_keys: int = CHUNK_KEYS
    ) -> None:
        """`chunk_keys` keys at most are summed up at once."""
        self._shape = shape
        self._kernels = kernels
        self._chunk_keys = chunk_keys
        self._masks: dict[tuple[int, int, int, int], Masks[Array]] = {}
        """Good for ever: positions keep their slots."""

    def clear(self) -> None:
        """Forgets them."""
        self._masks.clear()

    def of(
        self,
        placement: ContiguousPlacement,
        groups: int,
        first: int,
        count: int,
        counts: Sequence[int],
    ) -> Masks[Array] | None:
        """What `count` queries from position `first` on see, None when it is nothing.

        In layers of `groups` heads a key, for products of as few queries as `counts`,
        ascending, allow. `placement` has all slots that they are to see.
        """
        shape = self._shape
        if shape.evicted_end(first + count - 1) <= max(shape.sink, placement.origin):
            return None
        queries = counts[bisect_left(counts, count)]
        key = (groups, first, count, queries)
        masks = self._masks.get(key)
        if masks is None:
            # Rows beyond the real ones repeat the last position.
            positions = np.minimum(np.arange(first, first + queries), first + count - 1)
            seen = evicted_slots(placement, shape.sink, shape.window, positions, shape.tile)
            masks = Masks(
                first_row=0,
                count=count,
                queries=queries,
                chunks=cut(chunks(placement.segments, self._chunk_keys), len(seen)),
                biases=self._kernels.biases(seen, groups),
                spans=seen_spans(placement, shape.sink, shape.window, positions, shape.tile),
            )
            if len(self._masks) == REMEMBERED_MASKS:
                self._masks.clear()
            self._masks[key] = masks
        return masks
