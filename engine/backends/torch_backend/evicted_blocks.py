"""Blocks of queries that attend to evicted keys: how they are cut, padded and masked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.masks import bias_of, chunks, cut
from kakeya_fleet.engine.backends.torch_backend.product_rows import MOST_QUERIES
from kakeya_fleet.engine.backends.torch_backend.segment_products import Masks, Partial
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, ContiguousPlacement
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots

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
    asked: EvictedQueries, row: int, count: int, queries: int, kv_heads: int, dtype: torch.dtype
) -> Tensor:
    """The queries from `row` on as rows [kv_heads, groups * queries, head_dim] of a product."""
    heads, _, head_dim = asked.queries.shape
    # In memory of torch's own, aligned as products elsewhere are.
    padded = torch.zeros(heads, queries, head_dim)
    padded.numpy()[:, :count] = asked.queries[:, row : row + count]
    if dtype is not torch.float32:
        padded = padded.to(dtype)
    return padded.view(kv_heads, -1, head_dim)


def block_partial(found: Partial, heads: int, queries: int, count: int) -> BlockPartial:
    """What products found, without the padding rows."""
    sums, output, maximum = found
    return (
        output.numpy().reshape(heads, queries, -1)[:, :count],
        sums.numpy().reshape(heads, queries, 1)[:, :count],
        maximum.numpy().reshape(heads, queries, 1)[:, :count],
    )


class BlockMasks:
    """What blocks of queries see of the slots of a store; the layers of a forward share it."""

    def __init__(self, shape: EvictedShape, chunk_keys: int = CHUNK_KEYS) -> None:
        """`chunk_keys` keys at most are summed up at once."""
        self._shape = shape
        self._chunk_keys = chunk_keys
        self._masks: dict[tuple[int, int, int], Masks] = {}
        """Good for ever: positions keep their slots."""

    def clear(self) -> None:
        """Forgets them."""
        self._masks.clear()

    def of(
        self, placement: ContiguousPlacement, first: int, count: int, counts: Sequence[int]
    ) -> Masks | None:
        """What `count` queries from position `first` on see, None when it is nothing.

        For products of as few queries as `counts`, ascending, allow. `placement`
        has all slots that they are to see.
        """
        if first + count - 1 - self._shape.window < max(self._shape.sink, placement.origin):
            return None
        queries = counts[bisect_left(counts, count)]
        masks = self._masks.get((first, count, queries))
        if masks is None:
            # Rows beyond the real ones repeat the last position.
            positions = np.minimum(np.arange(first, first + queries), first + count - 1)
            seen = evicted_slots(placement, self._shape.sink, self._shape.window, positions)
            masks = Masks(
                first_row=0,
                count=count,
                queries=queries,
                chunks=cut(chunks(placement.segments, self._chunk_keys), len(seen)),
                biases=tuple(None if part is None else bias_of(part) for part in seen),
            )
            if len(self._masks) == REMEMBERED_MASKS:
                self._masks.clear()
            self._masks[first, count, queries] = masks
        return masks
