"""bfloat16 as its 16 bits: the upper half of a binary32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_QUIET = np.uint16(0x0040)
_HALF = np.uint32(16)
_ONE = np.uint32(1)
_BELOW_HALF = np.uint32(0x7FFF)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value, ties to the even one; NaN stays NaN."""
    plain = np.ascontiguousarray(values, np.float32)
    bits = plain.view(np.uint32)
    rounded = bits >> _HALF
    rounded &= _ONE
    rounded += _BELOW_HALF
    # Wraps around for NaN alone, which is put right below.
    rounded += bits
    rounded >>= _HALF
    nearest = rounded.astype(np.uint16)
    is_nan = np.isnan(plain)
    if is_nan.any():
        # A payload in the lower half alone would round to an infinity.
        nearest[is_nan] = (bits[is_nan] >> _HALF).astype(np.uint16) | _QUIET
    return nearest


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
