"""torch tensors as row-major bytes and back, in the formats that travel between hosts."""

from __future__ import annotations

import math

import torch

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def buffer_of(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], memoryview]:
    """The name of the tensor's format, its sizes and its bytes.

    The bytes are the tensor's own, which must not change while they are read, unless it
    lies on an accelerator or not in row-major order: then they are copied. Raises
    `ValueError` for another format than float32, bfloat16, float16 and int8.
    """
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise ValueError(f"tensors of {tensor.dtype} do not travel")
    if not tensor.numel():
        return name, tuple(tensor.shape), memoryview(b"")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return name, tuple(tensor.shape), flat.view(torch.uint8).numpy().data


def array_of(dtype: str, shape: tuple[int, ...], buffer: memoryview | bytes) -> torch.Tensor:
    """The tensor of these bytes, which it shares if they may be written; else it has a copy.

    `dtype` is one of float32, bfloat16, float16 and int8. Raises `ValueError` for another,
    and unless there are as many bytes as `shape` says.
    """
    wanted = _DTYPES.get(dtype)
    if wanted is None:
        raise ValueError(f"tensors of {dtype!r} do not travel")
    given = memoryview(buffer)
    if given.nbytes != math.prod(shape) * wanted.itemsize:
        raise ValueError(f"{given.nbytes} bytes are no {dtype} {shape}")
    if not given.nbytes:
        return torch.empty(shape, dtype=wanted)
    # torch warns of memory that it must not write, and takes it all the same.
    writable = bytearray(given) if given.readonly else given
    return torch.frombuffer(writable, dtype=wanted).reshape(shape)
