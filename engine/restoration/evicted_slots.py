"""Which slots of a store queries attend to. Pure, in numpy."""

from __future__ import annotations

import numpy as np

from kakeya_fleet.engine.contracts.positions import ContiguousPlacement
from kakeya_fleet.engine.kv.slot_views import Queries, Seen


def evicted_slots(
    placement: ContiguousPlacement, sink: int, window: int, queries: Queries
) -> tuple[Seen | None, ...]:
    """For each segment up to the last that is seen: which query sees which slot.

    `queries` [n] are positions in ascending order; query i sees `sink <= j <= i - window`:
    what `engine.contracts.positions.attends` leaves out, as far as the placement has slots.
    An entry is [n, keys], or None where every query sees every key. Segments
    behind the last one that is seen have no entry; those before the sink's end
    have one that hides them.
    """
    found: list[Seen | None] = []
    first = placement.origin
    for keys in placement.segments[: placement.used(int(queries[-1]) - window + 1)]:
        if first >= sink and first + keys - 1 <= queries[0] - window:
            found.append(None)
        else:
            slots = np.arange(first, first + keys)
            found.append((slots >= sink) & (slots <= queries[:, None] - window))
        first += keys
    return tuple(found)
