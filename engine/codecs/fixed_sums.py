"""Sums along an axis in one order of additions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Doubles: TypeAlias = "NDArray[np.float64]"


def fixed_sum(numbers: Doubles, axis: int) -> Doubles:
    """Sums by halves along an axis, which is kept: the same bits however many tiles there are.

    numpy's own order of additions depends on the shape and the strides of the whole array.
    """
    found = np.moveaxis(numbers, axis, 0)
    while len(found) > 1:
        half = len(found) // 2
        folded = found[:half] + found[half : 2 * half]
        found = np.concatenate((folded, found[2 * half :])) if len(found) % 2 else folded
    return np.moveaxis(found, 0, axis)
