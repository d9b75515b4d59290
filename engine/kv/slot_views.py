"""Which key slots the queries of a forward attend to. Pure, in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.positions import ContiguousPlacement, Placement, RingPlacement

if TYPE_CHECKING:
    from numpy.typing import NDArray

Queries: TypeAlias = "NDArray[np.int64]"
Seen: TypeAlias = "NDArray[np.bool_]"


def evicted_ends(queries: Queries, window: int, tile: int) -> Queries:
    """`engine.contracts.positions.evicted_end` of many queries at once."""
    return np.maximum(0, queries - window + 1) // tile * tile


def seen_slots(placement: Placement, queries: Queries, end: int) -> tuple[Seen | None, ...]:
    """For each segment that holds keys below `end`: which query sees which slot.

    `queries` [n] are positions in ascending order, each below `end`. An entry is
    [n, keys], or None where every query sees every key. The rule is that of
    `engine.contracts.positions.attends`, and of a layer's own sliding window.
    """
    if isinstance(placement, ContiguousPlacement):
        return _contiguous(placement, queries, end)
    if isinstance(placement, RingPlacement):
        return _ring(placement, queries, end)
    raise TypeError(f"nothing is known of the slots of a {type(placement).__name__}")


def _contiguous(
    placement: ContiguousPlacement, queries: Queries, end: int
) -> tuple[Seen | None, ...]:
    found: list[Seen | None] = []
    first = 0
    for keys in placement.segments[: placement.used(end)]:
        seen_by_all = first + keys <= queries[0] + 1
        found.append(
            None if seen_by_all else np.less_equal(np.arange(first, first + keys), queries[:, None])
        )
        first += keys
    return tuple(found)


def _ring(placement: RingPlacement, queries: Queries, end: int) -> tuple[Seen | None, ...]:
    layout = placement.layout
    sink, window, ring, tile = layout.sink, layout.window, layout.ring, layout.tile
    keys, used = placement.segments[0], placement.used(end)
    slots = np.arange(used * keys)
    # `RingLayout.held` for all slots at once; in the sink a slot is its position.
    held = end - 1 - (end - 1 - slots) % ring
    held[:sink] = slots[:sink]
    query = queries[:, None]
    seen = (held >= sink) & (held >= evicted_ends(query, window, tile))
    seen[:, :sink] = True
    seen &= held <= query
    if placement.reach is not None:
        seen &= held > query - placement.reach
    parts = (seen[:, first : first + keys] for first in range(0, used * keys, keys))
    return tuple(None if part.all() else part for part in parts)
