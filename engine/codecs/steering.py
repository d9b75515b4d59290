"""How the rounding error of a channel steers the channels that follow.

SQuat (arXiv 2503.24358): an error e of a key counts as e A e, A = I + strength * Q^T Q, where the
rows of Q are what queries look along. Once the channels F of a block are rounded, the error of all
that follow, R, is best as -A_RR^-1 A_RF e_F: as GPTQ does for weights (arXiv 2210.17323).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.fixed_sums import Doubles
    from kakeya_fleet.engine.codecs.tile import Floats

STRENGTH = 1e-3
"""The authors' lambda."""
MOST_BLOCK = 64


def steering(directions: Floats, strength: float = STRENGTH, block: int = 1) -> Floats:
    """What of a channel's lost number is added to each channel: [head_dim, head_dim].

    `directions` [r, head_dim] are singular vectors of a K/V head's queries times their singular
    values. A row is a channel that was rounded; it is 0 up to the end of that channel's `block`.
    In one order of additions, so that it has the same bits on every machine. Raises
    `CodecRefused` for directions that are not finite, a strength below 0 and blocks beyond 1 to 64.
    """
    if directions.ndim != 2 or not np.isfinite(directions).all():
        raise CodecRefused("directions of queries have to be finite, [count, head_dim]")
    if not (math.isfinite(strength) and strength >= 0 and 1 <= block <= MOST_BLOCK):
        raise CodecRefused(
            f"a strength of {strength} in blocks of {block}: take 0 or more, and 1 to {MOST_BLOCK}"
        )
    swept = _measure(directions.astype(np.float64), strength)
    head_dim = len(swept)
    found = np.zeros((head_dim, head_dim), np.float32)
    for first in reversed(range(0, head_dim, block)):
        end = min(first + block, head_dim)
        found[first:end, end:] = swept[end:, first:end].T
        for pivot in range(first, end):
            _sweep(swept, pivot)
    return found


def _measure(directions: Doubles, strength: float) -> Doubles:
    """A = I + strength * Q^T Q."""
    found = np.eye(directions.shape[1])
    for direction in directions:
        found += strength * (direction[:, None] * direction[None, :])
    return found


def _sweep(matrix: Doubles, pivot: int) -> None:
    """A step of Gauss and Jordan: of swept rows R, the columns F become A_RR^-1 A_RF."""
    row = matrix[pivot] / matrix[pivot, pivot]
    column = matrix[:, pivot].copy()
    column[pivot] = 0.0
    matrix -= column[:, None] * row[None, :]
    # What the inverse has in this column is never looked at: only columns before it are.
    matrix[pivot] = row
