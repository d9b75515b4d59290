"""Sines and cosines by additions and products in one order: the same bits on every machine.

A library's own differ in the last bit from one processor to the next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.fixed_sums import Doubles

MOST_ANGLE = float(1 << 24)
"""Radians, either way: so that a count of quarters times `_HIGH` is exact."""
_QUARTER = math.pi / 2
_HIGH = math.floor(_QUARTER * 2**28) / 2**28
_LOW = _QUARTER - _HIGH
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(8))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(9))
"""Taylor's series: up to a half of a quarter they are wrong by less than 1e-16."""


def sines_and_cosines(angles: Doubles) -> tuple[Doubles, Doubles]:
    """Of angles in radians, `MOST_ANGLE` at most, to within 1e-8."""
    quarters = np.rint(angles / _QUARTER)
    rest = (angles - quarters * _HIGH) - quarters * _LOW
    square = rest * rest
    sine, cosine = rest * _series(square, _SINE), _series(square, _COSINE)
    turn = quarters.astype(np.int64) % 4
    odd = turn % 2 == 1
    sines = np.where(odd, cosine, sine) * np.where(turn >= 2, -1.0, 1.0)
    cosines = np.where(odd, sine, cosine) * np.where((turn == 1) | (turn == 2), -1.0, 1.0)
    return sines, cosines


def _series(square: Doubles, factors: tuple[float, ...]) -> Doubles:
    """Horner's scheme."""
    found = np.full_like(square, factors[-1])
    for factor in factors[-2::-1]:
        found = found * square + factor
    return found
