"""A tensor as it travels: its name, format, sizes and row-major bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.node.links.protocol.bfloat16 import from_bfloat16, to_bfloat16

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TensorDtype(StrEnum):
    """Element formats, by the names that libraries of tensors give them."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return _ITEM_BYTES[self]


_ITEM_BYTES: Mapping[TensorDtype, int] = {
    TensorDtype.FLOAT32: 4,
    TensorDtype.BFLOAT16: 2,
    TensorDtype.FLOAT16: 2,
    TensorDtype.INT8: 1,
}


@dataclass(frozen=True, slots=True)
class WireTensor:
    """Little-endian elements in row-major order, as many as `shape` says.

    `first_position` is that of the first row of a tensor with a row a position.
    """

    name: str
    dtype: TensorDtype
    shape: tuple[int, ...]
    data: bytes | memoryview
    first_position: int = 0


def tensor_bytes(dtype: TensorDtype, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of that format."""
    return math.prod(shape) * dtype.item_bytes


def from_buffer(
    name: str, dtype: str, shape: tuple[int, ...], buffer: memoryview, first_position: int = 0
) -> WireTensor:
    """The tensor whose row-major bytes `buffer` holds; they are not copied.

    Raises `ValueError` when `dtype` names no `TensorDtype`.
    """
    return WireTensor(name, TensorDtype(dtype), shape, buffer.cast("B"), first_position)


def from_floats(
    name: str,
    values: NDArray[np.float32],
    dtype: TensorDtype = TensorDtype.FLOAT32,
    first_position: int = 0,
) -> WireTensor:
    """The tensor of `values`, as float32 or rounded to bfloat16."""
    if dtype is TensorDtype.BFLOAT16:
        data = to_bfloat16(values).astype("<u2", copy=False).tobytes()
    else:
        data = np.ascontiguousarray(values, "<f4").tobytes()
    return WireTensor(name, dtype, values.shape, data, first_position)


def to_floats(tensor: WireTensor) -> NDArray[np.float32] | None:
    """The values as float32, read only; None for a format that holds none here."""
    if tensor.dtype is TensorDtype.FLOAT32:
        return np.frombuffer(tensor.data, "<f4").reshape(tensor.shape)
    if tensor.dtype is TensorDtype.BFLOAT16:
        return from_bfloat16(np.frombuffer(tensor.data, "<u2")).reshape(tensor.shape)
    return None
