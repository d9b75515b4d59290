"""bfloat16 as its 16 bits: the upper half of a binary32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUIET, _BELOW_HALF = 0x0040, 0x7FFF
_HALF_BITS = 16


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each value, ties to the even one; NaN stays NaN."""
    plain = np.ascontiguousarray(values, np.float32)
    bits = plain.view(np.uint32)
    half = np.uint32(_HALF_BITS)
    rounded = bits >> half
    rounded &= np.uint32(1)
    rounded += np.uint32(_BELOW_HALF)
    # Wraps around for NaN alone, which is put right below.
    rounded += bits
    rounded >>= half
    nearest = rounded.astype(np.uint16)
    is_nan = np.isnan(plain)
    if is_nan.any():
        # A payload in the lower half alone would round to an infinity.
        nearest[is_nan] = (bits[is_nan] >> half).astype(np.uint16) | np.uint16(_QUIET)
    return nearest


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values, exactly."""
    return (bits.astype(np.uint32) << np.uint32(_HALF_BITS)).view(np.float32)
