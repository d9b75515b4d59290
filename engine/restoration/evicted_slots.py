"""Which slots of a store queries attend to. Pure, in numpy."""

from __future__ import annotations

import numpy as np

from kakeya_fleet.engine.contracts.positions import ContiguousPlacement
from kakeya_fleet.engine.kv.slot_views import Queries, Seen, evicted_ends


def seen_spans(
    placement: ContiguousPlacement, sink: int, window: int, queries: Queries, tile: int = 1
) -> Queries:
    """First slots and ends [2, n] of what `evicted_slots` says of queries [n]."""
    ends = np.minimum(evicted_ends(queries, window, tile) - placement.origin, placement.slots)
    return np.stack((np.full_like(ends, max(0, sink - placement.origin)), ends))


def evicted_slots(
    placement: ContiguousPlacement, sink: int, window: int, queries: Queries, tile: int = 1
) -> tuple[Seen | None, ...]:
    """For each segment up to the last that is seen: which query sees which slot.

    `queries` [n] are positions in ascending order; query i sees `sink <= j < e`, e being its
    `engine.contracts.positions.evicted_end`: what `attends` leaves out, as far as the placement
    has slots.
    An entry is [n, keys], or None where every query sees every key. Segments
    behind the last one that is seen have no entry; those before the sink's end
    have one that hides them.
    """
    found: list[Seen | None] = []
    first = placement.origin
    ends = evicted_ends(queries, window, tile)
    for keys in placement.segments[: placement.used(int(ends[-1]))]:
        if first >= sink and first + keys <= ends[0]:
            found.append(None)
        else:
            slots = np.arange(first, first + keys)
            found.append((slots >= sink) & (slots < ends[:, None]))
        first += keys
    return tuple(found)
