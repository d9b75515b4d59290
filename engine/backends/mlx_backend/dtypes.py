"""Number formats by name."""

from __future__ import annotations

import mlx.core as mx

from engine.errors import BadParameters

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}


def mlx_dtype(name: str) -> mx.Dtype:
    """The format called `name`; raises `BadParameters`."""
    if name not in DTYPES:
        raise BadParameters(f"no dtype {name!r}; there are: {', '.join(DTYPES)}")
    return DTYPES[name]
