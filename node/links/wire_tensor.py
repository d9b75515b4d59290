"""A tensor as it travels: its name, format, sizes and row-major bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.bfloat16 import from_bfloat16, to_bfloat16

FLOAT32 = wire.TENSOR_DTYPE_FLOAT32
BFLOAT16 = wire.TENSOR_DTYPE_BFLOAT16

DTYPES: Mapping[str, wire.TensorDtype.ValueType] = {
    "float32": wire.TENSOR_DTYPE_FLOAT32,
    "bfloat16": wire.TENSOR_DTYPE_BFLOAT16,
    "float16": wire.TENSOR_DTYPE_FLOAT16,
    "int8": wire.TENSOR_DTYPE_INT8,
}
"""Element formats by the names that libraries of tensors give them."""

ITEM_BYTES: Mapping[int, int] = {
    wire.TENSOR_DTYPE_FLOAT32: 4,
    wire.TENSOR_DTYPE_BFLOAT16: 2,
    wire.TENSOR_DTYPE_FLOAT16: 2,
    wire.TENSOR_DTYPE_INT8: 1,
}


@dataclass(frozen=True, slots=True)
class WireTensor:
    """Little-endian elements in row-major order, as many as `shape` says.

    `first_position` is that of the first row of a tensor with a row a position.
    """

    name: str
    dtype: wire.TensorDtype.ValueType
    shape: tuple[int, ...]
    data: bytes | memoryview
    first_position: int = 0


def tensor_bytes(dtype: int, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of a format that `ITEM_BYTES` has."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def from_buffer(
    name: str, dtype: str, shape: tuple[int, ...], buffer: memoryview, first_position: int = 0
) -> WireTensor:
    """The tensor whose row-major bytes `buffer` holds; they are not copied.

    `dtype` is a key of `DTYPES`.
    """
    return WireTensor(name, DTYPES[dtype], shape, buffer.cast("B"), first_position)


def from_floats(
    name: str,
    values: NDArray[np.float32],
    dtype: wire.TensorDtype.ValueType = FLOAT32,
    first_position: int = 0,
) -> WireTensor:
    """The tensor of `values`, as float32 or rounded to bfloat16."""
    if dtype == BFLOAT16:
        data = to_bfloat16(values).astype("<u2", copy=False).tobytes()
    else:
        data = np.ascontiguousarray(values, "<f4").tobytes()
    return WireTensor(name, dtype, values.shape, data, first_position)


def to_floats(tensor: WireTensor) -> NDArray[np.float32] | None:
    """The values as float32, read only; None for a format that holds none here."""
    if tensor.dtype == FLOAT32:
        return np.frombuffer(tensor.data, "<f4").reshape(tensor.shape)
    if tensor.dtype == BFLOAT16:
        return from_bfloat16(np.frombuffer(tensor.data, "<u2")).reshape(tensor.shape)
    return None
