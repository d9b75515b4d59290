"""Which of some weights a random number falls on: the inverse of their cumulative distribution.

Sums that depend on each other one after the other are most of what a choice costs, so spans of
weights are added up first, and only the span that the number falls in is gone through.
Source: Devroye, "Non-Uniform Random Variate Generation" (1986), III.2, inversion by sequential
search, here in two levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPAN = 512


def drawn(weights: NDArray[np.float64], number: float) -> tuple[int, float]:
    """The index in `weights` [n] that `number`, 0 to 1 - 2**-53, falls on.

    Index i has a share of [0, 1) as large as its weight's of all, behind the shares of those before
    it. None is negative, and one of them 1; who weighs nothing is never drawn. And how much of [0,
    1) lies between the number and what would fall on another index.
    """
    ends = np.add.reduceat(weights, np.arange(0, weights.size, SPAN)).cumsum()
    total = float(ends[-1])
    # The rounded product stays below the sum, which is at least 1.
    target = number * total
    span = int(ends.searchsorted(target, side="right"))
    target -= float(ends[span - 1]) if span else 0.0
    own = weights[span * SPAN : (span + 1) * SPAN]
    inside = own.cumsum()
    at = int(inside.searchsorted(target, side="right"))
    if at == own.size:
        # The span's sum was rounded otherwise.
        at = int(own.nonzero()[0][-1])
    below = float(inside[at - 1]) if at else 0.0
    margin = max(0.0, min(target - below, float(inside[at]) - target)) / total
    return span * SPAN + at, margin
