"""bfloat16 as its 16 bits: the upper half of a binary32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_QUIET = np.uint16(0x0040)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value, ties to the even one; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    upper = bits >> np.uint32(16)
    # Wraps around for NaN alone, which is put right below.
    rounded = (bits + (np.uint32(0x7FFF) + (upper & np.uint32(1)))) >> np.uint32(16)
    nearest = rounded.astype(np.uint16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    if is_nan.any():
        # A payload in the lower half alone would round to an infinity.
        nearest[is_nan] = upper[is_nan].astype(np.uint16) | _QUIET
    return nearest


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
