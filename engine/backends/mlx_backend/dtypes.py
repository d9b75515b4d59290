"""Number formats by name."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.errors import BadParameters

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def mlx_dtype(name: str) -> mx.Dtype:
    """The format called `name`; raises `BadParameters`."""
    if name not in DTYPES:
        raise BadParameters(f"no dtype {name!r}; there are: {', '.join(DTYPES)}")
    return DTYPES[name]


def raw(array: mx.array) -> Raw:
    """The numbers of `array` as they lie in memory: float32, or the bits of bfloat16. A copy."""
    found: Raw = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    return found


def from_raw(array: Raw, dtype: mx.Dtype) -> mx.array:
    """The array whose `raw` is `array`."""
    found = mx.array(array)
    return found.view(mx.bfloat16) if dtype == mx.bfloat16 else found
