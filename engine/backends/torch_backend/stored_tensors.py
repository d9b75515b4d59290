"""Tensors of a folder in the hub's format, read strictly with torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kakeya_fleet.engine.backends.stored_tensors import (
    StoredTensor,
    check_tensors,
    listed,
    stored_tensors,
)
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import QuantizedWeight
from kakeya_fleet.engine.errors import OutOfMemory, WeightsMismatch
from kakeya_fleet.engine.memory.system_memory import give_back
from kakeya_fleet.engine.models.weight_reading import weights_read

__all__ = [
    "StoredTensor",
    "check_tensors",
    "listed",
    "read_tensors",
    "read_whole",
    "stored_bytes",
    "stored_tensors",
]


@dataclass(frozen=True, slots=True)
class Part:
    """What is read of a stored tensor, and which outputs of what is read are the weight's.

    A number in `place` takes one of a dimension, and drops it.
    """

    place: tuple[slice | int, ...]
    turned: bool = False
    """Whether outputs are the last dimension there."""
    first: int = 0
    step: int = 1
    """Each so-manieth output from the first one on."""

    def own(self, read: Tensor) -> Tensor:
        """The weight, a view of what was `read`."""
        return (read.T if self.turned else read)[self.first :: self.step]


NO_PARTS: Mapping[str, Part] = MappingProxyType({})
"""Every tensor is read whole."""
NONE_QUANTIZED: Mapping[str, QuantizedWeight] = MappingProxyType({})
_OF_BYTES = {1: ("I8", "F8_E4M3"), 2: ("F16", "BF16"), 4: ("F32", "I32", "U32"), 8: ("I64",)}
HOLE_BYTES = 1 << 20
"""Stored: what smaller tensors leave free in the heap is not worth the milliseconds of a look."""
ITEM_BYTES = {dtype: size for size, dtypes in _OF_BYTES.items() for dtype in dtypes}


def read_tensors(
    stored: Mapping[str, StoredTensor],
    names: Iterable[str],
    dtype: torch.dtype,
    parts: Mapping[str, Part] = NO_PARTS,
    quantized: Mapping[str, QuantizedWeight] = NONE_QUANTIZED,
    device: Device = HOST,
) -> dict[str, Tensor]:
    """The tensors `names` of `stored`, in memory of their own on `device` and in `dtype`.

    They go there one by one: the host has no more than one of them besides the files.

    Of those that `parts` names only that part is kept; those in `quantized` are made of
    what is stored of them. Raises `WeightsMismatch`
    for a file that breaks off and for numbers that are not finite, `OutOfMemory`.
    """
    weights = {name: _numbers(name, stored, dtype, parts, quantized, device) for name in names}
    broken = sorted(name for name, tensor in weights.items() if not _is_finite(tensor))
    if broken:
        raise WeightsMismatch(f"numbers that are not finite: {listed(broken)}")
    return weights


def _numbers(
    name: str,
    stored: Mapping[str, StoredTensor],
    dtype: torch.dtype,
    parts: Mapping[str, Part],
    quantized: Mapping[str, QuantizedWeight],
    device: Device,
) -> Tensor:
    """One tensor of `read_tensors`. What is mapped of its file is mapped no more behind it."""
    own = quantized.get(name)
    nbytes = sum(stored_bytes(each) for each in (own.parts if own else (stored[name],)))
    if nbytes >= HOLE_BYTES:
        # What was freed since the one before: between what stays, the heap would keep the holes.
        give_back()
    if own is None:
        # A copy: the file's mapping is not aligned to vectors, and can change.
        return _read(
            stored[name],
            parts.get(name),
            lambda found: found.to(
                device.place, dtype, copy=True, memory_format=torch.contiguous_format
            ),
        )
    made = own.numbers(*(read_whole(part) for part in own.parts))
    weights_read(nbytes)
    part = parts.get(name)
    if part is None:
        return made.to(device.place, dtype)
    return part.own(made[part.place]).to(device.place, dtype, copy=True)


def _is_finite(tensor: Tensor) -> bool:
    """Whether all of its numbers are: those that are not show in the least and the largest.

    In a fortieth of the time that it takes to ask each, and without memory of its size.
    """
    if not tensor.numel():
        return True
    least, most = tensor.aminmax()
    return bool(least.isfinite() and most.isfinite())


def stored_bytes(tensor: StoredTensor) -> int:
    """Bytes that it takes in its file."""
    return math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def read_whole(tensor: StoredTensor) -> Tensor:
    """All of it, as it is stored. Raises `WeightsMismatch`, `OutOfMemory`."""
    return _read(tensor, None, lambda found: found, tell=False)


def _read(
    tensor: StoredTensor,
    part: Part | None,
    made: Callable[[Tensor], Tensor],
    *,
    tell: bool = True,
) -> Tensor:
    """What is `made` of a tensor, or of a part of it, in the mapped file.

    Mapped for this tensor alone: pages of a mapping that stays count as the process's memory.
    """
    path = tensor.file
    try:
        with safe_open(path, framework="pt") as file:
            if part is None:
                found: Tensor = file.get_tensor(tensor.name)
            else:
                found = file.get_slice(tensor.name)[part.place]
            result = made(found if part is None else part.own(found))
            if tell:
                weights_read(found.nbytes)
            return result
    except (SafetensorError, OSError) as error:
        raise WeightsMismatch(
            f"{path.name} cannot be read ({error}); fetch it again", path=str(path)
        ) from error
    except (MemoryError, RuntimeError) as error:  # torch's allocator raises the latter
        raise OutOfMemory(f"{path} does not fit into memory", path=str(path)) from error
