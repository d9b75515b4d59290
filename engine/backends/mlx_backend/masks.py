"""Which key slots the queries of one forward attend to.

A mask is an additive bias [groups * queries, keys] (float32) of one key
segment, 0 where `engine.positions.attends` and minus infinity elsewhere; None
where every query attends to every key. Row g * queries + i is query i, for
every head g of a group.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from engine.positions import ContiguousPlacement, Placement, RingPlacement

CHUNK_KEYS = 8192
"""Keys whose scores are summed at once: what bounds a forward's peak."""


def chunks(segments: tuple[int, ...]) -> tuple[range, ...]:
    """Consecutive segments of at most `CHUNK_KEYS` keys together, or one.

    The borders depend on the slots alone, so that the order of additions does too.
    """
    found: list[range] = []
    first = keys = 0
    for index, size in enumerate(segments):
        if keys + size > CHUNK_KEYS and index > first:
            found.append(range(first, index))
            first, keys = index, 0
        keys += size
    return (*found, range(first, len(segments)))


def biases(
    placement: Placement, queries: NDArray[np.int64], end: int, groups: int
) -> tuple[mx.array | None, ...]:
    """The masks of the segments that hold keys below `end`, in ascending order.

    `queries` [n] are the queries' positions in ascending order, each below `end`.
    """
    return tuple(
        None if part is None or part.all() else _bias(part, groups)
        for part in _seen(placement, queries, end)
    )


def attended(placement: Placement, queries: NDArray[np.int64], end: int) -> list[bool]:
    """Whether any of `queries` attends to the key in each slot of the segments in use."""
    found: list[bool] = []
    parts = _seen(placement, queries, end)
    for part, keys in zip(parts, placement.segments, strict=False):
        found += [True] * keys if part is None else np.logical_or.reduce(part).tolist()
    return found


def _seen(
    placement: Placement, queries: NDArray[np.int64], end: int
) -> Iterator[NDArray[np.bool_] | None]:
    """For each segment in use which of `queries` sees which key; None if all see all."""
    if isinstance(placement, ContiguousPlacement):
        return _contiguous(placement, queries, end)
    if isinstance(placement, RingPlacement):
        return _ring(placement, queries, end)
    raise TypeError(f"{type(placement).__name__} has no masks")


def _contiguous(
    placement: ContiguousPlacement, queries: NDArray[np.int64], end: int
) -> Iterator[NDArray[np.bool_] | None]:
    first = 0
    for keys in placement.segments[: placement.used(end)]:
        if first + keys <= queries[0] + 1:
            yield None
        else:
            yield np.less_equal(np.arange(first, first + keys), queries[:, None])
        first += keys


def _ring(
    placement: RingPlacement, queries: NDArray[np.int64], end: int
) -> Iterator[NDArray[np.bool_]]:
    layout = placement.layout
    sink, window, ring = layout.sink, layout.window, layout.ring
    keys, used = placement.segments[0], placement.used(end)
    slots = np.arange(used * keys)
    # `RingLayout.held` for all slots at once; in the sink a slot is its position.
    held = end - 1 - (end - 1 - slots) % ring
    held[:sink] = slots[:sink]
    query = queries[:, None]
    seen = (held >= sink) & (held > query - window)
    seen[:, :sink] = True
    seen &= held <= query
    if placement.reach is not None:
        seen &= held > query - placement.reach
    for segment in range(used):
        yield seen[:, segment * keys : (segment + 1) * keys]


def _bias(seen: NDArray[np.bool_], groups: int) -> mx.array:
    bias = np.where(seen, np.float32(0), np.float32("-inf"))
    return mx.array(np.tile(bias, (groups, 1)))
