"""Number formats by name."""

from __future__ import annotations

import torch

from engine.errors import BadParameters

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def torch_dtype(name: str) -> torch.dtype:
    """The format called `name`; raises `BadParameters`."""
    if name not in DTYPES:
        raise BadParameters(f"no dtype {name!r}; there are: {', '.join(DTYPES)}")
    return DTYPES[name]
