"""MLX arrays as row-major bytes and back, in the formats that travel between hosts.

Streams belong to a thread: both functions are called in the thread that evaluates.
"""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

_DTYPES = {
    "float32": mx.float32,
    "bfloat16": mx.bfloat16,
    "float16": mx.float16,
    "int8": mx.int8,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# numpy has no bfloat16, and the conversion raises: its 16 bits travel.
_HOST_DTYPES: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "bfloat16": np.uint16,
    "float16": np.float16,
    "int8": np.int8,
}


def buffer_of(array: mx.array) -> tuple[str, tuple[int, ...], memoryview]:
    """The name of the array's format, its sizes and its bytes; evaluates it.

    The bytes are the array's own, which the view keeps, unless it is not in row-major
    order: then they are copied. Raises `ValueError` for another format than float32, bfloat16,
    float16 and int8.
    """
    name = _NAMES.get(array.dtype)
    if name is None:
        raise ValueError(f"arrays of {array.dtype} do not travel")
    flat = array.reshape(-1)
    bits = flat.view(mx.uint16) if name == "bfloat16" else flat
    mx.eval(bits)
    host: NDArray[np.generic] = np.ascontiguousarray(np.array(bits, copy=False))
    return name, tuple(array.shape), host.view(np.uint8).data


def array_of(dtype: str, shape: tuple[int, ...], buffer: memoryview | bytes) -> mx.array:
    """The array of these bytes, which MLX copies.

    `dtype` is one of float32, bfloat16, float16 and int8. Raises `ValueError` for another,
    and unless there are as many bytes as `shape` says.
    """
    wanted = _DTYPES.get(dtype)
    if wanted is None:
        raise ValueError(f"arrays of {dtype!r} do not travel")
    given = memoryview(buffer)
    if given.nbytes != math.prod(shape) * wanted.size:
        raise ValueError(f"{given.nbytes} bytes are no {dtype} {shape}")
    flat = mx.array(np.frombuffer(given, _HOST_DTYPES[dtype]))
    if dtype == "bfloat16":
        flat = flat.view(mx.bfloat16)
    return flat.reshape(shape)
