"""What a store shows to a query is exactly what the cache beside it does not."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.positions import FINE_SEGMENT, attends, contiguous_placement
from kakeya_fleet.engine.restoration.evicted_slots import evicted_slots


@settings(deadline=None)
@given(
    sink=st.integers(0, 300),
    window=st.integers(1, 600),
    first=st.integers(0, 3000),
    count=st.integers(1, 16),
)
# The first query sees all of a segment, or all but its last slot.
@example(sink=0, window=13, first=FINE_SEGMENT - 1 + 13, count=3)
@example(sink=0, window=13, first=FINE_SEGMENT - 2 + 13, count=3)
@example(sink=FINE_SEGMENT, window=1, first=2 * FINE_SEGMENT, count=1)
@example(sink=FINE_SEGMENT + 1, window=1, first=2 * FINE_SEGMENT, count=1)
def test_each_earlier_position_is_seen_once(sink: int, window: int, first: int, count: int) -> None:
    newest = first + count - 1
    if newest - window < sink:
        return
    placement = contiguous_placement(newest - window + 1)
    queries = np.arange(first, first + count)
    parts = evicted_slots(placement, sink, window, queries)
    assert len(parts) == placement.used(newest - window + 1)
    whole = [
        np.ones((count, keys), np.bool_) if part is None else part
        for part, keys in zip(parts, placement.segments, strict=True)
    ]
    shown = np.concatenate(whole, axis=1)
    for row, query in enumerate(queries.tolist()):
        own = np.array([attends(query, key, sink, window) for key in range(query + 1)])
        evicted = np.zeros(query + 1, np.bool_)
        width = min(query + 1, shown.shape[1])
        evicted[:width] = shown[row, :width]
        assert np.array_equal(evicted, ~own)
        assert not shown[row, width:].any()
