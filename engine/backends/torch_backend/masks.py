"""Which key slots the queries of one forward attend to.

A mask is an additive bias [queries, keys] (float32) of one key segment, 0 where
`engine.positions.attends` and minus infinity elsewhere; None where every query
attends to every key.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.positions import ContiguousPlacement, Placement, RingPlacement

MASKED = float("-inf")

CHUNK_KEYS = 8192
"""Keys whose scores are in memory at once: what bounds a forward's peak."""


@dataclass(frozen=True, slots=True)
class Run:
    """Segments `first` to `last` (exclusive) of `keys` slots each."""

    first: int
    last: int
    keys: int


def chunks(segments: tuple[int, ...]) -> tuple[tuple[Run, ...], ...]:
    """Segments in chunks of at most `CHUNK_KEYS` keys, those in runs of equal segments.

    The borders depend on the slots alone, so that the order of additions does too.
    """
    found: list[tuple[Run, ...]] = []
    runs: list[Run] = []
    total = 0
    for index, keys in enumerate(segments):
        if total + keys > CHUNK_KEYS and runs:
            found.append(tuple(runs))
            runs, total = [], 0
        total += keys
        if runs and runs[-1].keys == keys:
            runs[-1] = Run(runs[-1].first, index + 1, keys)
        else:
            runs.append(Run(index, index + 1, keys))
    return (*found, tuple(runs))


def cut(all_chunks: tuple[tuple[Run, ...], ...], used: int) -> tuple[tuple[Run, ...], ...]:
    """The part of `all_chunks` that covers the first `used` segments."""
    kept = (
        tuple(Run(run.first, min(run.last, used), run.keys) for run in chunk if run.first < used)
        for chunk in all_chunks
    )
    return tuple(chunk for chunk in kept if chunk)


def biases(placement: Placement, queries: Tensor, end: int) -> tuple[Tensor | None, ...]:
    """The masks of the segments that hold keys below `end`, in ascending order.

    `queries` [n] (int64) are the queries' positions in ascending order, each below `end`.
    """
    if isinstance(placement, ContiguousPlacement):
        return _contiguous(placement, queries, end)
    if isinstance(placement, RingPlacement):
        return _ring(placement, queries, end)
    raise TypeError(f"{type(placement).__name__} has no masks")


def _contiguous(
    placement: ContiguousPlacement, queries: Tensor, end: int
) -> tuple[Tensor | None, ...]:
    first_query = int(queries[0])
    masks: list[Tensor | None] = []
    first = 0
    for keys in placement.segments[: placement.used(end)]:
        seen_by_all = first + keys <= first_query + 1
        masks.append(
            None if seen_by_all else _bias(torch.arange(first, first + keys) <= queries[:, None])
        )
        first += keys
    return tuple(masks)


def _ring(placement: RingPlacement, queries: Tensor, end: int) -> tuple[Tensor | None, ...]:
    layout = placement.layout
    sink, window, ring = layout.sink, layout.window, layout.ring
    keys = placement.segments[0]
    used = placement.used(end)
    slots = torch.arange(used * keys)
    # `RingLayout.held` for all slots at once; in the sink a slot is its position.
    held = end - 1 - (end - 1 - slots) % ring
    held[:sink] = slots[:sink]
    query = queries[:, None]
    seen = (held >= sink) & (held > query - window)
    seen[:, :sink] = True
    seen &= held <= query
    if placement.reach is not None:
        seen &= held > query - placement.reach
    bias = _bias(seen)
    return tuple(bias[:, first : first + keys] for first in range(0, used * keys, keys))


def _bias(attended: Tensor) -> Tensor:
    return torch.zeros(attended.shape).masked_fill_(~attended, MASKED)
