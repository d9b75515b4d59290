"""Which key slots the queries of one forward attend to.

A mask is an additive bias [groups * queries, keys] (float32) of one key
segment, 0 where `engine.contracts.positions.attends` and minus infinity elsewhere; None
where every query attends to every key. Row g * queries + i is query i, for
every head g of a group.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, Placement
from kakeya_fleet.engine.kv.slot_views import Queries, Seen, seen_slots


def chunks(segments: tuple[int, ...]) -> tuple[range, ...]:
    """Consecutive segments of at most `CHUNK_KEYS` keys together, or one.

    The borders depend on the slots alone, so that the order of additions does too.
    """
    found: list[range] = []
    first = keys = 0
    for index, size in enumerate(segments):
        if keys + size > CHUNK_KEYS and index > first:
            found.append(range(first, index))
            first, keys = index, 0
        keys += size
    return (*found, range(first, len(segments)))


def biases(
    placement: Placement, queries: Queries, end: int, groups: int
) -> tuple[mx.array | None, ...]:
    """The masks of the segments that hold keys below `end`, in ascending order.

    `queries` [n] are the queries' positions in ascending order, each below `end`.
    """
    seen = seen_slots(placement, queries, end)
    return tuple(None if part is None else bias_of(part, groups) for part in seen)


def bias_of(seen: Seen, groups: int) -> mx.array:
    """The mask of one segment."""
    bias = np.where(seen, np.float32(0), np.float32("-inf"))
    return mx.array(np.tile(bias, (groups, 1)))
