"""Which slot holds which position, and the mask that follows from it.

A mask is an additive bias [groups * width, keys] of one key segment, 0 where
`engine.positions.attends` and minus infinity elsewhere. Row g * width + r is
query r of the forward, for every head g of a group.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.backends.torch_backend.kv_shape import KvShape
from engine.positions import RingLayout, ring_layout, round_up

SEGMENT_KEYS = 256
"""Keys of a segment of `contiguous`. Fixed: it shapes the kernels, and so the bits."""

MASKED = float("-inf")


class SlotMap(Protocol):
    """The way of one cache kind to place positions."""

    slots: int
    """Slots allocated."""
    segment: int
    """Keys of a segment; divides `slots`."""

    def indices(self, start: int, count: int) -> Tensor:
        """Slots [count] (int64) of the positions from `start`."""
        ...

    def biases(self, queries: Tensor, end: int) -> tuple[Tensor, ...]:
        """The masks of the segments that hold keys below `end`, in ascending order.

        `queries` [width] are the queries' positions, each below `end`.
        """
        ...


class ContiguousSlots:
    """Position p is in slot p."""

    segment = SEGMENT_KEYS

    def __init__(self, shape: KvShape, capacity: int) -> None:
        self.slots = round_up(capacity, SEGMENT_KEYS)
        self._shape = shape
        self._keys = torch.arange(SEGMENT_KEYS)
        self._all_seen = torch.zeros(shape.groups * shape.width, SEGMENT_KEYS, dtype=shape.dtype)

    def indices(self, start: int, count: int) -> Tensor:
        """Slots [count] (int64) of the positions from `start`."""
        return torch.arange(start, start + count)

    def biases(self, queries: Tensor, end: int) -> tuple[Tensor, ...]:
        """The masks of the segments that hold keys below `end`."""
        # Every query is at end - width or later, so keys up to there are seen by all.
        seen_by_all = max(0, end - self._shape.width + 1)
        return tuple(
            self._all_seen
            if first + SEGMENT_KEYS <= seen_by_all
            else _bias(self._keys + first <= queries[:, None], self._shape)
            for first in range(0, end, SEGMENT_KEYS)
        )


RING_SEGMENT_KEYS = (128, 192, 256)
"""Keys of a segment of `sink_window`, when its slots do not fit in one segment."""


def ring_segment(slots: int) -> int:
    """The segment that holds `slots`, or else the one that wastes the fewest slots."""
    if slots <= max(RING_SEGMENT_KEYS):
        return slots
    return min(reversed(RING_SEGMENT_KEYS), key=lambda keys: round_up(slots, keys))


class RingSlots:
    """Sink slots, then a ring; see `engine.positions.RingLayout` for why it is exact.

    Until the ring wraps, position p is in slot p, and the segments behind the
    history hold nothing: they are left out, as those of `contiguous` are.
    """

    def __init__(self, shape: KvShape, sink: int, window: int) -> None:
        size = (sink, window, shape.width, shape.context_length)
        self.segment = ring_segment(ring_layout(*size).slots)
        self.layout: RingLayout = ring_layout(*size, multiple=self.segment)
        self.slots = self.layout.slots
        self._shape = shape
        self._slot = torch.arange(self.slots)

    def indices(self, start: int, count: int) -> Tensor:
        """Slots [count] (int64) of the positions from `start`."""
        slot = self.layout.slot
        return torch.tensor([slot(position) for position in range(start, start + count)])

    def biases(self, queries: Tensor, end: int) -> tuple[Tensor, ...]:
        """The masks of the segments that hold keys below `end`."""
        sink, window, ring = self.layout.sink, self.layout.window, self.layout.ring
        # `RingLayout.held` for all slots at once; in the sink a slot is its position.
        held = end - 1 - (end - 1 - self._slot) % ring
        query = queries[:, None]
        in_ring = (held >= sink) & (held <= query) & (held > query - window)
        in_ring[:, :sink] = self._slot[:sink] <= query
        used = range(0, min(end, self.slots), self.segment)
        return tuple(_bias(in_ring[:, first : first + self.segment], self._shape) for first in used)


def _bias(attended: Tensor, shape: KvShape) -> Tensor:
    """The additive bias [groups * width, keys] of the boolean mask [width, keys]."""
    bias = torch.zeros(attended.shape, dtype=shape.dtype).masked_fill_(~attended, MASKED)
    return bias.repeat(shape.groups, 1)
