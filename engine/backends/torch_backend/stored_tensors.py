"""Tensors of a folder in the hub's format, read strictly with torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import QuantizedWeight
from kakeya_fleet.engine.errors import OutOfMemory, WeightsMismatch
from kakeya_fleet.engine.models.weight_reading import weights_read

__all__ = [
    "StoredTensor",
    "check_tensors",
    "listed",
    "read_tensors",
    "read_whole",
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
ITEM_BYTES = {dtype: size for size, dtypes in _OF_BYTES.items() for dtype in dtypes}


def read_tensors(
    stored: Mapping[str, StoredTensor],
    names: Iterable[str],
    dtype: torch.dtype,
    parts: Mapping[str, Part] = NO_PARTS,
    quantized: Mapping[str, QuantizedWeight] = NONE_QUANTIZED,
) -> dict[str, Tensor]:
    """The tensors `names` of `stored`, in memory of their own and in `dtype`.

    Of those that `parts` names only that part is kept; those in `quantized` are made of
    what is stored of them. Raises `WeightsMismatch`
    for a file that breaks off and for numbers that are not finite, `OutOfMemory`.
    """
    every = list(names)
    weights: dict[str, Tensor] = {}
    for name in (each for each in every if each in quantized):
        own = quantized[name]
        made = own.numbers(*(read_whole(part) for part in own.parts))
        if name in parts:
            made = parts[name].own(made[parts[name].place])
        weights[name] = made.to(dtype, copy=True)
        weights_read(sum(_stored_bytes(each) for each in own.parts))
    wanted = [name for name in every if name not in quantized]
    for path in sorted({stored[name].file for name in wanted}):
        try:
            with safe_open(path, framework="pt") as file:
                for name in (name for name in wanted if stored[name].file == path):
                    # A copy: the file's mapping is not aligned to vectors, and can change.
                    found = _read(file, stored[name], parts.get(name))
                    weights[name] = found.to(
                        dtype, copy=True, memory_format=torch.contiguous_format
                    )
                    weights_read(found.nbytes)
        except (SafetensorError, OSError) as error:
            raise WeightsMismatch(
                f"{path.name} cannot be read ({error}); fetch it again", path=str(path)
            ) from error
        except (MemoryError, RuntimeError) as error:  # torch's allocator raises the latter
            raise OutOfMemory(f"{path} does not fit into memory", path=str(path)) from error
    broken = sorted(name for name, tensor in weights.items() if not _is_finite(tensor))
    if broken:
        raise WeightsMismatch(f"numbers that are not finite: {listed(broken)}")
    return weights


def _is_finite(tensor: Tensor) -> bool:
    """Whether all of its numbers are: those that are not show in the least and the largest.

    In a fortieth of the time that it takes to ask each, and without memory of its size.
    """
    if not tensor.numel():
        return True
    least, most = tensor.aminmax()
    return bool(least.isfinite() and most.isfinite())


def _stored_bytes(tensor: StoredTensor) -> int:
    return math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def read_whole(tensor: StoredTensor) -> Tensor:
    """All of it, as it is stored. Raises `WeightsMismatch`, `OutOfMemory`."""
    try:
        with safe_open(tensor.file, framework="pt") as file:
            return _read(file, tensor, None)
    except (SafetensorError, OSError) as error:
        raise WeightsMismatch(
            f"{tensor.file.name} cannot be read ({error}); fetch it again", path=str(tensor.file)
        ) from error
    except (MemoryError, RuntimeError) as error:  # torch's allocator raises the latter
        raise OutOfMemory(
            f"{tensor.file} does not fit into memory", path=str(tensor.file)
        ) from error


def _read(file: safe_open, tensor: StoredTensor, part: Part | None) -> Tensor:
    if part is None:
        whole: Tensor = file.get_tensor(tensor.name)  # type: ignore[no-untyped-call]
        return whole
    found: Tensor = file.get_slice(tensor.name)[part.place]  # type: ignore[no-untyped-call]
    return part.own(found)
