"""Which key slots the queries of one forward attend to.

A mask is an additive bias [queries, keys] (float32) of one key segment, 0 where
`engine.contracts.positions.attends` and minus infinity elsewhere; None where every query
attends to every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, Placement, RingPlacement
from kakeya_fleet.engine.kv.slot_views import Queries, Seen, seen_slots


@dataclass(frozen=True, slots=True)
class Run:
    """Segments `first` to `last` (exclusive) of `keys` slots each."""

    first: int
    last: int
    keys: int


def chunks(segments: tuple[int, ...], most: int = CHUNK_KEYS) -> tuple[tuple[Run, ...], ...]:
    """Segments in chunks of at most `most` keys, those in runs of equal segments.

    The borders depend on the slots alone, so that the order of additions does too.
    """
    found: list[tuple[Run, ...]] = []
    runs: list[Run] = []
    total = 0
    for index, keys in enumerate(segments):
        if total + keys > most and runs:
            found.append(tuple(runs))
            runs, total = [], 0
        total += keys
        if runs and runs[-1].keys == keys:
            runs[-1] = Run(runs[-1].first, index + 1, keys)
        else:
            runs.append(Run(index, index + 1, keys))
    return (*found, tuple(runs))


def cut(all_chunks: tuple[tuple[Run, ...], ...], used: int) -> tuple[tuple[Run, ...], ...]:
    """The part of `all_chunks` that covers the first `used` segments."""
    kept = (
        tuple(Run(run.first, min(run.last, used), run.keys) for run in chunk if run.first < used)
        for chunk in all_chunks
    )
    return tuple(chunk for chunk in kept if chunk)


def biases(placement: Placement, queries: Queries, end: int) -> tuple[Tensor | None, ...]:
    """The masks of the segments that hold keys below `end`, in ascending order.

    `queries` [n] are the queries' positions in ascending order, each below `end`.
    """
    seen = seen_slots(placement, queries, end)
    return tuple(None if part is None else bias_of(part) for part in seen)


def bias_of(seen: Seen) -> Tensor:
    """The mask of one segment."""
    return torch.from_numpy(np.where(seen, np.float32(0), np.float32(-np.inf)))


def stacked(
    placement: Placement, masks: Sequence[Tensor | None], groups: int, queries: int
) -> Tensor | None:
    """The mask [groups * queries, keys] of a ring of one segment; None for other placements.

    What it holds is read whole in every forward: also once all of it is seen.
    """
    if not isinstance(placement, RingPlacement) or len(placement.segments) > 1:
        return None
    mask = masks[0] if masks[0] is not None else torch.zeros(queries, placement.slots)
    return mask.repeat(groups, 1)
