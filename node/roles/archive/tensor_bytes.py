"""Deposits, queries and partial attentions as bytes, row-major and little-endian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
    Raw,
)
from kakeya_fleet.engine.contracts.raw_numbers import is_finite
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.roles.archive.position_tags import TAG_BYTES, Tags

if TYPE_CHECKING:
    from numpy.typing import NDArray

MESSAGE_BYTES = 1 << 20
"""Tensor bytes of one message at most, as far as one position or query allows."""
QUERY_MULTIPLE = 16
"""Queries are parted at multiples of it, so that a whole product is not made two."""
_FLOAT32, _FLOAT32_BYTES = "<f4", 4
_TAG = "<u8"


@dataclass(frozen=True, slots=True)
class DepositPiece:
    """The arrays of `count` positions."""

    count: int
    evicted: Evicted


def deposit_pieces(shape: EvictedShape, evicted: Evicted) -> Iterator[tuple[int, DepositPiece]]:
    """A deposit of `shape` in as many pieces as its bytes take, each with where it starts."""
    count = shape.count_of(evicted)
    most = max(1, MESSAGE_BYTES // (shape.tile * shape.deposited_bytes_per_position)) * shape.tile
    for start in range(0, count, most):
        end = min(count, start + most)
        yield start, DepositPiece(end - start, shape.part(evicted, start, end))


def tag_sizes(shape: EvictedShape, count: int) -> tuple[int, int]:
    """Layers and tags of each, one a position or tile, of a deposit; none of context vectors."""
    return (0 if shape.width else len(shape.layers), count // shape.tile)


def deposit_of(shape: EvictedShape, count: int, body: NDArray[np.uint8]) -> tuple[Evicted, Tags]:
    """The deposit of `count` positions whose arrays lie in `body` one after the other.

    Behind them their tags. Raises `RestorerRefused` when its bytes are not its shape's.
    """
    arrays = shape.arrays(count)
    sizes_of_tags = tag_sizes(shape, count)
    numbers = sum(math.prod(sizes) * dtype.itemsize for dtype, sizes in arrays)
    size = numbers + math.prod(sizes_of_tags) * TAG_BYTES
    if count < 1 or count % shape.tile or len(body) != size:
        raise RestorerRefused(f"{len(body)} bytes are not those of {count} positions")
    tags = np.frombuffer(body[numbers:].tobytes(), _TAG).reshape(sizes_of_tags)
    found: list[Raw] = []
    start = 0
    for dtype, sizes in arrays:
        end = start + math.prod(sizes) * dtype.itemsize
        found.append(_array(body[start:end], dtype, sizes))
        start = end
    if shape.width:
        return found[0].astype(_FLOAT32, copy=False), tags
    return EvictedKeysValues(tuple(found)), tags


def query_pieces(asked: EvictedQueries) -> list[EvictedQueries]:
    """Queries in as many contiguous pieces as their bytes take."""
    values = np.ascontiguousarray(asked.queries, _FLOAT32)
    count = values.shape[1]
    if values.nbytes <= MESSAGE_BYTES:
        if values is asked.queries:
            return [asked]
        return [replace(asked, queries=values)]
    most = MESSAGE_BYTES // (values.nbytes // count) // QUERY_MULTIPLE * QUERY_MULTIPLE
    most = max(QUERY_MULTIPLE, most)
    return [
        EvictedQueries(
            asked.layer,
            asked.first + start,
            asked.scaling,
            np.ascontiguousarray(values[:, start : start + most]),
        )
        for start in range(0, count, most)
    ]


def queries_of(
    shape: EvictedShape,
    layer: int,
    first: int,
    count: int,
    scaling: float,
    data: NDArray[np.uint8],
) -> EvictedQueries:
    """`count` queries from position `first` on, [heads, count, head_dim] in `data`.

    Raises `RestorerRefused` for a layer or size that cannot be.
    """
    group = shape.group_of.get(layer)
    if group is None:
        raise RestorerRefused(f"layer {layer} keeps nothing of what was evicted")
    sizes = (group.shape.kv_heads * group.shape.groups, count, group.shape.head_dim)
    values = _array(data, np.dtype(_FLOAT32), sizes).astype(_FLOAT32, copy=False)
    return EvictedQueries(layer, first, scaling, values)


def partial_parts(partial: PartialAttention) -> tuple[NDArray[np.float32], ...]:
    """Output, total and maximum as they are sent."""
    return tuple(
        np.ascontiguousarray(array, _FLOAT32)
        for array in (partial.output, partial.total, partial.maximum)
    )


def partial_of(body: NDArray[np.uint8], sizes: tuple[int, int, int]) -> PartialAttention:
    """The partial attention of `sizes` [heads, n, head_dim] that lies in `body`.

    Raises `ValueError` for another size, `RestorerRefused` for numbers that cannot be.
    """
    heads, count, head_dim = sizes
    rows = heads * count
    if len(body) != rows * (head_dim + 2) * _FLOAT32_BYTES:
        raise ValueError("an archive answered with another number of bytes")
    numbers = body.view(_FLOAT32)
    values = rows * head_dim
    total = numbers[values : values + rows]
    if not is_finite(numbers) or total.min() < 0.0:
        raise RestorerRefused("an archive answered with numbers that are not finite")
    return PartialAttention(
        output=numbers[:values].reshape(sizes),
        total=total.reshape(heads, count, 1),
        maximum=numbers[values + rows :].reshape(heads, count, 1),
    )


def _array(data: NDArray[np.uint8], dtype: np.dtype[np.generic], sizes: tuple[int, ...]) -> Raw:
    count = math.prod(sizes)
    if not count or len(data) != count * dtype.itemsize:
        raise RestorerRefused(f"{len(data)} bytes are not those of {dtype.name} {list(sizes)}")
    if dtype == _FLOAT32:
        return data.view(np.float32).reshape(sizes)
    if dtype == np.uint8:
        return data.reshape(sizes)
    return data.view(np.uint16).reshape(sizes)
