"""Numbers as they lie in caches, and as float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw

KeysValues: TypeAlias = "tuple[Raw, ...]"
"""Of n positions as they lie in a cache, keys with rotary positions applied: an array for each
group of `engine.contracts.kv_layout.KvLayout.groups`, [layers, 2, kv_heads, n, head_dim]."""
FORMATS = {"float32": "<f4", "bfloat16": "<u2"}
"""Of numbers as they lie in a cache; see `engine.contracts.evicted_store.Raw`."""
_SHIFT = 16
"""A bfloat16 is the upper half of a float32."""
_BFLOAT16_EXPONENT = 0x7F80
"""An exponent of ones: infinite, or not a number."""


def as_float32(numbers: Raw) -> Floats:
    """The same numbers; float32 are not copied."""
    if numbers.dtype == np.uint16:
        return (numbers.astype(np.uint32) << _SHIFT).view(np.float32)
    return cast("Floats", numbers)


def is_finite(array: Raw) -> bool:
    """Whether all numbers are finite."""
    if array.dtype == np.uint16:
        exponents = array.view(np.uint16) & _BFLOAT16_EXPONENT
        return not bool((exponents == _BFLOAT16_EXPONENT).any())
    # One call where nearly all are; a sum that overflows proves nothing.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def in_format(numbers: Floats, dtype: str) -> Raw:
    """Finite numbers in the format of a cache, `float32` or `bfloat16`: the nearest, ties to even.

    What is nearer to 2**128 than to bfloat16's largest becomes infinite, as by IEEE 754.
    """
    if dtype == "float32":
        return numbers
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    odd = (bits >> _SHIFT) & 1
    return ((bits + (0x7FFF + odd)) >> _SHIFT).astype(np.uint16)
