"""Deposits, queries and partial attentions as bytes, row-major and little-endian."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from engine.errors import RestorerRefused
from engine.restoration.contract import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
    Raw,
)
from engine.restoration.shape import EvictedShape, deposited
from kakeya.v1 import archive_pb2 as wire

MESSAGE_BYTES = 2 << 20
"""Tensor bytes of one message at most, as far as one position or query allows."""
QUERY_MULTIPLE = 16
"""Queries are parted at multiples of it, so that a whole product is not made two."""
_FLOAT32 = np.dtype("<f4")


def deposit_messages(
    shape: EvictedShape, first: int, evicted: Evicted
) -> Iterator[wire.UseArchiveRequest]:
    """A deposit of `shape` in as many messages as its bytes take."""
    arrays = deposited(evicted)
    axis = 0 if shape.width else 3
    count = arrays[0].shape[axis]
    most = max(1, MESSAGE_BYTES // shape.deposited_bytes_per_position)
    for start in range(0, count, most):
        end = min(count, start + most)
        parts = [_along(array, axis, start, end) for array in arrays]
        yield wire.UseArchiveRequest(
            deposit=wire.EvictedDeposit(
                first_position=first + start,
                position_count=end - start,
                tensors=[part.tobytes() for part in parts],
            )
        )


def deposit_from_wire(shape: EvictedShape, message: wire.EvictedDeposit) -> Evicted:
    """The deposit of a message. Raises `RestorerRefused` when its bytes are not its shape's."""
    arrays = shape.arrays(message.position_count)
    if len(message.tensors) != len(arrays):
        raise RestorerRefused(
            f"a deposit has {len(message.tensors)} tensors in place of {len(arrays)}"
        )
    found: list[Raw] = []
    for data, (dtype, sizes) in zip(message.tensors, arrays, strict=True):
        found.append(_array(data, dtype, sizes))
    return found[0].astype(_FLOAT32, copy=False) if shape.width else EvictedKeysValues(tuple(found))


def query_messages(asked: EvictedQueries) -> list[tuple[int, wire.UseArchiveRequest]]:
    """Queries in as many messages as their bytes take, each with its count."""
    count = asked.queries.shape[1]
    most = MESSAGE_BYTES // (asked.queries.nbytes // count) // QUERY_MULTIPLE * QUERY_MULTIPLE
    most = max(QUERY_MULTIPLE, most)
    messages = []
    for start in range(0, count, most):
        part = asked.queries[:, start : start + most]
        message = wire.EvictedQueries(
            layer=asked.layer,
            first_position=asked.first + start,
            query_count=part.shape[1],
            scaling=asked.scaling,
            queries=part.tobytes(),
        )
        messages.append((part.shape[1], wire.UseArchiveRequest(queries=message)))
    return messages


def queries_from_wire(shape: EvictedShape, message: wire.EvictedQueries) -> EvictedQueries:
    """The queries of a message. Raises `RestorerRefused` for a layer or size that cannot be."""
    group = shape.group_of.get(message.layer)
    if group is None:
        raise RestorerRefused(f"layer {message.layer} keeps nothing of what was evicted")
    sizes = (shape.query_heads(message.layer), message.query_count, group.shape.head_dim)
    return EvictedQueries(
        layer=message.layer,
        first=message.first_position,
        scaling=message.scaling,
        queries=_array(message.queries, _FLOAT32, sizes).astype(_FLOAT32, copy=False),
    )


def partial_to_wire(
    partial: PartialAttention, *, stored_bytes: int, compute_seconds: float
) -> wire.UseArchiveResponse:
    """The answer to queries."""
    return wire.UseArchiveResponse(
        partial=wire.PartialAttention(
            output=_bytes(partial.output),
            total=_bytes(partial.total),
            maximum=_bytes(partial.maximum),
            stored_bytes=stored_bytes,
            compute_seconds=compute_seconds,
        )
    )


def partial_from_wire(
    message: wire.PartialAttention, sizes: tuple[int, int, int]
) -> PartialAttention:
    """The partial attention of `sizes` [heads, n, head_dim].

    Raises `ValueError` for another size, `RestorerRefused` for numbers that cannot be.
    """
    column = (*sizes[:2], 1)
    counts = (math.prod(sizes), math.prod(column), math.prod(column))
    found = (message.output, message.total, message.maximum)
    if [len(data) for data in found] != [count * _FLOAT32.itemsize for count in counts]:
        raise ValueError("an archive answered with another number of bytes")
    partial = PartialAttention(
        output=_array(message.output, _FLOAT32, sizes).astype(_FLOAT32),
        total=_array(message.total, _FLOAT32, column).astype(_FLOAT32),
        maximum=_array(message.maximum, _FLOAT32, column).astype(_FLOAT32),
    )
    numbers = (partial.output, partial.total, partial.maximum)
    if not all(np.isfinite(array).all() for array in numbers) or (partial.total < 0.0).any():
        raise RestorerRefused("an archive answered with numbers that are not finite")
    return partial


def _bytes(array: NDArray[np.float32]) -> bytes:
    return np.ascontiguousarray(array, _FLOAT32).tobytes()


def _along(array: Raw, axis: int, start: int, end: int) -> Raw:
    return array[start:end] if axis == 0 else array[:, :, :, start:end]


def _array(data: bytes, dtype: np.dtype[np.generic], sizes: tuple[int, ...]) -> Raw:
    count = int(np.prod(sizes, dtype=np.int64))
    if not count or len(data) != count * dtype.itemsize:
        raise RestorerRefused(f"{len(data)} bytes are not those of {dtype.name} {list(sizes)}")
    # Of its own: torch takes no array that cannot be written.
    array: Raw = np.frombuffer(bytearray(data), dtype).reshape(sizes)
    return array
