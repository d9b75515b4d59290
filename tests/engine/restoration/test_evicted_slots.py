"""What a store shows to a query is exactly what the cache beside it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.positions import (
    FINE_SEGMENT,
    attends,
    contiguous_placement,
    evicted_end,
    ring_placement,
)
from kakeya_fleet.engine.kv.slot_views import Seen, seen_slots
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots

TILE = 64
CONTEXT = 8192


def joined(
    parts: Sequence[Seen | None], segments: Sequence[int], count: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """[count, slots] of segments, None being all of one."""
    whole = [
        np.ones((count, keys), np.bool_) if part is None else part
        for part, keys in zip(parts, segments, strict=False)
    ]
    return np.concatenate(whole, axis=1)


@settings(deadline=None)
@given(
    sink=st.integers(0, 300),
    window=st.integers(1, 600),
    first=st.integers(0, 3000),
    count=st.integers(1, 16),
    is_packed=st.booleans(),
)
# The first query sees all of a segment, or all but its last slot.
@example(sink=0, window=13, first=FINE_SEGMENT - 1 + 13, count=3, is_packed=False)
@example(sink=0, window=13, first=FINE_SEGMENT - 2 + 13, count=3, is_packed=False)
@example(sink=FINE_SEGMENT, window=1, first=2 * FINE_SEGMENT, count=1, is_packed=False)
@example(sink=FINE_SEGMENT + 1, window=1, first=2 * FINE_SEGMENT, count=1, is_packed=False)
# A tile leaves with the last of its positions, and not before.
@example(sink=0, window=13, first=TILE - 2 + 13, count=3, is_packed=True)
@example(sink=4, window=1, first=2 * TILE - 2, count=4, is_packed=True)
def test_each_earlier_position_is_seen_once(
    sink: int, window: int, first: int, count: int, is_packed: bool
) -> None:
    tile = TILE if is_packed else 1
    sink = -(-sink // tile) * tile
    newest = first + count - 1
    end = evicted_end(newest, window, tile)
    queries = np.arange(first, first + count)
    shown = np.zeros((count, newest + 1), np.bool_)
    if end > sink:
        placement = contiguous_placement(end)
        parts = evicted_slots(placement, sink, window, queries, tile)
        assert len(parts) == placement.used(end)
        found = joined(parts, placement.segments, count)
        width = min(newest + 1, found.shape[1])
        shown[:, :width] = found[:, :width]
        assert not found[:, width:].any()
    resident = resident_positions(sink, window, tile, queries)
    for row, query in enumerate(queries.tolist()):
        own = np.array([attends(query, key, sink, window, tile) for key in range(newest + 1)])
        assert np.array_equal(resident[row], own)
        earlier = np.arange(newest + 1) <= query
        assert np.array_equal(shown[row], earlier & ~own)


def resident_positions(
    sink: int, window: int, tile: int, queries: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """[queries, positions] that a cache's ring shows, by the slots that hold them."""
    placement = ring_placement(sink, window, CONTEXT, tile=tile)
    end = int(queries[-1]) + 1
    slots = joined(seen_slots(placement, queries, end), placement.segments, len(queries))
    found = np.zeros((len(queries), end), np.bool_)
    for slot in range(slots.shape[1]):
        held = placement.layout.held(slot, end)
        if held is not None:
            found[:, held] = slots[:, slot]
    return found
