"""What travels on a link for keys and values; the layout is that of `LINK_PURPOSE_KEYS_VALUES`.

Reads go to the archive's node, and come back in their order, each in pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor

READ = "read"
STORED = "stored"
REFUSED = "refused"
KEYS_VALUES = "kv"
MOST_REFUSAL_BYTES = 1024
MOST_READS = 1024
"""Of one tensor."""

_ROW = struct.Struct("<QQQ")
MOST_READS_BYTES = MOST_READS * _ROW.size
_STORED = struct.Struct("<Q")
_FORMATS = (TensorDtype.FLOAT32, TensorDtype.BFLOAT16)


def numbers_of(format_name: str, data: bytes | memoryview | NDArray[np.uint8]) -> Raw:
    """The numbers of a format that lie in `data`, without a copy."""
    if format_name == "float32":
        return np.frombuffer(data, np.float32)
    return np.frombuffer(data, np.uint16)


class BadRead(Exception):
    """A tensor is not of this layout; the message says what it is."""


def reads_to_wire(reads: Sequence[KvRead]) -> WireTensor:
    """The tensor of one or more reads, `MOST_READS` at most."""
    data = b"".join(_ROW.pack(read.layer, read.first, read.end) for read in reads)
    return WireTensor(READ, TensorDtype.INT8, (len(reads), _ROW.size), data)


def reads_from_wire(tensor: WireTensor) -> list[KvRead]:
    """The reads of a tensor. Raises `BadRead`."""
    if (
        tensor.name != READ
        or tensor.dtype != TensorDtype.INT8
        or len(tensor.shape) != 2
        or tensor.shape[1] != _ROW.size
        or tensor.shape[0] > MOST_READS
    ):
        raise BadRead(f"{tensor.name[:64]!r} {list(tensor.shape)} is no read")
    return [KvRead(*row) for row in _ROW.iter_unpack(tensor.data)]


def piece_to_wire(layer: int, first: int, numbers: Raw) -> WireTensor:
    """Keys and values [2, kv_heads, n, head_dim] of a layer, contiguous."""
    dtype = TensorDtype.FLOAT32 if numbers.dtype == np.float32 else TensorDtype.BFLOAT16
    data = numbers.reshape(-1).view(np.uint8).data
    return WireTensor(f"{KEYS_VALUES}.{layer}", dtype, numbers.shape, data, first)


def piece_from_wire(tensor: WireTensor, layer: int) -> Raw:
    """The numbers of a piece of a layer, without a copy. Raises `BadRead`."""
    if tensor.name != f"{KEYS_VALUES}.{layer}" or tensor.dtype not in _FORMATS:
        raise BadRead(f"{tensor.name[:64]!r} came where keys and values of layer {layer} were due")
    return numbers_of(tensor.dtype.value, tensor.data).reshape(tensor.shape)


def stored_to_wire(stored_bytes: int) -> WireTensor:
    """Says how many bytes keep the positions."""
    data = _STORED.pack(stored_bytes)
    return WireTensor(STORED, TensorDtype.INT8, (len(data),), data)


def stored_from_wire(tensor: WireTensor) -> int:
    """What `stored_to_wire` says. Raises `BadRead`."""
    if len(tensor.data) != _STORED.size:
        raise BadRead(f"{len(tensor.data)} bytes are no number")
    return int(_STORED.unpack(tensor.data)[0])


def refusal_to_wire(words: str) -> WireTensor:
    """Says why a read is not answered; the last tensor of a link."""
    data = words.encode()[:MOST_REFUSAL_BYTES]
    return WireTensor(REFUSED, TensorDtype.INT8, (len(data),), data)


def refusal_from_wire(tensor: WireTensor) -> str:
    """The words of a refusal."""
    return bytes(tensor.data[:MOST_REFUSAL_BYTES]).decode("utf-8", "replace")
