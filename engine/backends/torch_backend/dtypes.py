"""Number formats by name."""

from __future__ import annotations

import torch
from torch import Tensor

from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
from kakeya_fleet.engine.errors import BadParameters

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def torch_dtype(name: str) -> torch.dtype:
    """The format called `name`; raises `BadParameters`."""
    if name not in DTYPES:
        raise BadParameters(f"no dtype {name!r}; there are: {', '.join(DTYPES)}")
    return DTYPES[name]


def raw(tensor: Tensor) -> Raw:
    """The numbers of `tensor` as they lie in memory: float32, or the bits of bfloat16.

    Not copied where they are the host's.
    """
    here = tensor.cpu()
    of = here.view(torch.uint16) if here.dtype is torch.bfloat16 else here
    found: Raw = of.numpy()
    return found


def on_host(tensor: Tensor) -> Floats:
    """The numbers of a float32 tensor, not copied where they are the host's."""
    found: Floats = tensor.cpu().numpy()
    return found


def from_raw(array: Raw, dtype: torch.dtype) -> Tensor:
    """The tensor whose `raw` is `array`, without a copy."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype is torch.bfloat16 else tensor
