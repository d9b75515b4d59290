"""What no keys and values can give: answers that are looked through before they are used.

Each costs some comparisons of as many numbers as there are queries. They find what a fault
makes of numbers (zeros, a total of another maximum), not who lies with care: see `node.roles.
archive.answer_audit`.
"""

from __future__ import annotations

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.kv.slot_views import evicted_ends

ROUNDING = 1e-2
"""Of totals: sums of up to 2^31 weights of at most 1 in float32, in segments, round by less."""


def impossible(
    shape: EvictedShape, asked: EvictedQueries, end: int, found: PartialAttention
) -> str:
    """Why `found` is no attention to evicted positions below `end`; empty when it may be.

    Query i sees n_i = min(end, e_i) - sink of them, e_i being its `EvictedShape.evicted_end`.
    With n_i < 1 it has output and total 0 and maximum `NOTHING_SEEN`. Else the greatest
    score's weight is exp(0) = 1, and none is above it: 1 <= total <= n_i, but for
    `ROUNDING`, and the maximum is a score.
    """
    total, maximum = found.total[:, :, 0], found.maximum[:, :, 0]
    least = min(end, shape.evicted_end(asked.first)) - shape.sink
    if least > 0 and _is_possible(total, maximum, least):
        # As nearly always: the first query sees as many, and the others no fewer.
        return ""
    positions = np.arange(asked.first, asked.first + asked.queries.shape[1])
    seen = np.minimum(end, evicted_ends(positions, shape.window, shape.tile)) - shape.sink
    sees = seen > 0
    if not sees.all():
        blind = ~sees
        if found.output[:, blind].any() or total[:, blind].any():
            return "it attends where nothing is seen"
        if (maximum[:, blind] != np.float32(NOTHING_SEEN)).any():
            return "it has a score where nothing is seen"
    if not sees.any():
        return ""
    if (total[:, sees] < 1.0 - ROUNDING).any():
        return "its weights are less than the greatest of them"
    if (total[:, sees] > seen[sees] * (1.0 + ROUNDING)).any():
        return "its weights are more than the positions that are seen"
    if (maximum[:, sees] <= NOTHING_SEEN).any():
        return "it saw nothing where something is kept"
    return ""


def _is_possible(total: Floats, maximum: Floats, seen: int) -> bool:
    return bool(
        total.min() >= 1.0 - ROUNDING
        and total.max() <= seen * (1.0 + ROUNDING)
        and maximum.min() > NOTHING_SEEN
    )
