"""Which query attends to which key, and where a position's key/value is kept.

Everything is a rule about absolute positions. Nothing here depends on how a
history was cut into forwards: that is what makes a stream a function of the
history alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

SLOT_MULTIPLE = 64
"""Key slots come in multiples of this: with fewer, kernels change their rounding."""


def attends(query: int, key: int, sink: int, window: int, tile: int = 1) -> bool:
    """Whether the query at position `query` attends to the key at position `key`.

    The first `sink` positions and the last `window` (the query's own included)
    are seen, and those of a tile that has not left the window as a whole. Source: Xiao
    et al., "Efficient Streaming Language Models with Attention Sinks" (2023), stated on
    absolute positions.
    """
    return key <= query and (key < sink or key >= evicted_end(query, window, tile))


def evicted_end(query: int, window: int, tile: int = 1) -> int:
    """The positions below this have left the window of `query`: whole tiles; 0 for none.

    A tile is `tile` positions that begin at a multiple of it: what is packed as one.
    """
    return max(0, query - window + 1) // tile * tile


def resident_count(length: int, sink: int, window: int, tile: int = 1) -> int:
    """Positions below `length` that the query at position `length` attends to."""
    in_sink = min(length, sink)
    first_in_window = max(sink, evicted_end(length, window, tile))
    return in_sink + max(0, length - first_in_window)


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `count`."""
    return -(-count // multiple) * multiple


@dataclass(frozen=True, slots=True)
class RingLayout:
    """Where sink and window positions are kept: `sink` fixed slots, then a ring.

    Position p is in slot p while p < sink, else in slot
    sink + (p - sink) mod ring. With ring >= window + width - 1, forwards of at
    most `width` tokens never write over a key that is still needed, also when
    provisional tokens are rejected and their positions are written anew. Where
    positions leave in tiles, `window` + `tile` - 1 take the place of `window`:

    Let a forward start at `start`. It writes positions up to
    start + width - 1, so it writes over positions up to
    start + width - 1 - ring <= start - window. Any query from now on, also
    after a truncation to `start`, is at a position i >= start and sees ring
    positions j > i - window >= start - window only. So nothing written over is
    ever attended to.

    Rejected keys are masked without being marked. If a forward ends before the
    last rejected position r <= start + width - 1 (`start` being the rejected
    forward's), then r's slot is taken to hold r - ring <= start - window, which
    by the same inequality no later query attends to.
    """

    sink: int
    window: int
    ring: int
    tile: int = 1

    @property
    def widest_window(self) -> int:
        """The most positions behind the sink that a query sees."""
        return self.window + self.tile - 1

    @property
    def slots(self) -> int:
        """All key slots, a multiple of `SLOT_MULTIPLE`."""
        return self.sink + self.ring

    def slot(self, position: int) -> int:
        """The slot of `position`."""
        if position < self.sink:
            return position
        return self.sink + (position - self.sink) % self.ring

    def held(self, slot: int, end: int) -> int | None:
        """The latest position below `end` that belongs in `slot`, None if there is none."""
        if slot < self.sink:
            return slot if slot < end else None
        position = end - 1 - (end - 1 - slot) % self.ring
        return position if position >= self.sink else None


def ring_layout(
    sink: int,
    window: int,
    width: int,
    context_length: int,
    multiple: int = SLOT_MULTIPLE,
    tile: int = 1,
) -> RingLayout:
    """The layout for queries in forwards of at most `width` tokens.

    The slots are a multiple of `multiple`. `sink` and `window` beyond
    `context_length` take no slots: no position is ever there.
    """
    kept_sink = min(sink, context_length)
    kept_window = min(window, context_length)
    slots = round_up(kept_sink + kept_window + tile - 1 + width - 1, multiple)
    return RingLayout(sink=kept_sink, window=kept_window, ring=slots - kept_sink, tile=tile)


WIDTH = 16
"""Queries that every cache has room for in one forward: the last committed token and 15 drafted
ones. Back ends whose forwards all have the same number of rows verify no wider blocks."""

FINE_SEGMENT = 256
COARSE_SEGMENT = 1024
FINE_SLOTS = 2048
"""Slots below this lie in fine segments, those above in coarse ones.

A short history then reads few slots that hold nothing, and a long one takes few
products. The borders are at fixed slots, so that the segments that a query
meets, and with them its rounding, are a function of its position.
"""
CHUNK_KEYS = 8192
"""Keys whose scores are in memory at once: what bounds a forward's peak."""
FINE_RING_SEGMENTS = (128, 192, 256)
COARSE_RING_SEGMENTS = (512, 768, 1024)
WIDE_WINDOW = 512
WIDE_BLOCK = 64
"""Windows from `WIDE_WINDOW` on leave room to prefill `WIDE_BLOCK` tokens a forward."""


class Placement(Protocol):
    """Where a cache keeps which position, and in which segments attention reads it."""

    @property
    def slots(self) -> int:
        """Slots allocated."""
        ...

    @property
    def segments(self) -> tuple[int, ...]:
        """Slots of each segment, in slot order; their sum is `slots`."""
        ...

    @property
    def widest(self) -> int:
        """The most tokens of one forward, so that nothing needed is written over."""
        ...

    def slot(self, position: int) -> int:
        """The slot of `position`."""
        ...

    def used(self, end: int) -> int:
        """Segments that hold the positions below `end`: the first so many."""
        ...

    def forkable_from(self, written: int) -> int:
        """The shortest history whose keys are still there once `written` were written."""
        ...

    def has(self, first: int, end: int, written: int) -> bool:
        """Whether `first` to `end` > `first` are all still there once `written` were written."""
        ...


@dataclass(frozen=True, slots=True)
class ContiguousPlacement:
    """Position p is in slot p - `origin`, and stays there; none is below `origin`."""

    segments: tuple[int, ...]
    origin: int = 0
    slots: int = field(init=False, compare=False)
    """Slots allocated."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", sum(self.segments))

    @property
    def widest(self) -> int:
        """Nothing is ever written over."""
        return self.slots

    def slot(self, position: int) -> int:
        """The slot of `position`."""
        return position - self.origin

    def used(self, end: int) -> int:
        """Segments that hold the positions below `end`."""
        return max(0, _segments_below(end) - _segments_below(self.origin))

    def forkable_from(self, written: int) -> int:  # noqa: ARG002 - of no influence here
        """Every prefix is there."""
        return 0

    def has(self, first: int, end: int, written: int) -> bool:
        """What was written is there."""
        return self.origin <= first < end <= written


@dataclass(frozen=True, slots=True)
class RingPlacement:
    """Sink slots, then a ring; see `RingLayout` for why it is exact.

    Until the ring wraps, position p is in slot p, and the segments behind the
    history hold nothing. `reach` is the sliding window of a layer whose own is
    shorter than `sink` + history: it hides the sink once that is further away.
    """

    layout: RingLayout
    segments: tuple[int, ...]
    reach: int | None = None

    @property
    def slots(self) -> int:
        """Slots allocated."""
        return self.layout.slots

    @property
    def widest(self) -> int:
        """Bound of the proof in `RingLayout`: ring >= window + width - 1."""
        return self.layout.ring - self.layout.widest_window + 1

    def slot(self, position: int) -> int:
        """The slot of `position`."""
        return self.layout.slot(position)

    def used(self, end: int) -> int:
        """Segments that hold the positions below `end`."""
        return min(-(-end // self.segments[0]), len(self.segments))

    def forkable_from(self, written: int) -> int:
        """The bound of the proof in `RingLayout`, with `written` as its last position's end."""
        return max(0, written + self.layout.widest_window - 1 - self.layout.ring)

    def has(self, first: int, end: int, written: int) -> bool:
        """Those of the sink, and the latest that the ring holds."""
        oldest = written - self.layout.ring
        in_ring = end <= self.layout.sink or max(first, self.layout.sink) >= oldest
        return 0 <= first < end <= written and in_ring


def contiguous_placement(end: int, origin: int = 0) -> ContiguousPlacement:
    """Room for the positions from `origin` to `end`, exclusive, in whole segments.

    `origin` is a multiple of `COARSE_SEGMENT`: a segment begins there in either
    case, so that the segments are those that room for all positions has.
    """
    count = _segments_below(end)
    fine = min(count, FINE_SLOTS // FINE_SEGMENT)
    segments = (FINE_SEGMENT,) * fine + (COARSE_SEGMENT,) * (count - fine)
    return ContiguousPlacement(segments[_segments_below(origin) :], origin)


def _segments_below(end: int) -> int:
    """Segments that positions below `end` take."""
    fine = -(-min(end, FINE_SLOTS) // FINE_SEGMENT)
    return fine + max(0, -(-(end - FINE_SLOTS) // COARSE_SEGMENT))


def ring_placement(
    sink: int,
    window: int,
    context_length: int,
    *,
    reach: int | None = None,
    tile: int = 1,
    is_wide: bool = False,
) -> RingPlacement:
    """Room for `sink` and `window` and the blocks of a forward, in equal segments.

    One that `is_wide` has room for `WIDE_BLOCK` tokens a forward whatever the window.
    """
    is_wide = is_wide or min(window, context_length) >= WIDE_WINDOW
    width = WIDE_BLOCK if is_wide else WIDTH
    slots = ring_layout(sink, window, width, context_length, tile=tile).slots
    segment = slots
    if slots > max(FINE_RING_SEGMENTS):
        sizes = FINE_RING_SEGMENTS if slots <= FINE_SLOTS else COARSE_RING_SEGMENTS
        segment = min(reversed(sizes), key=lambda keys: round_up(slots, keys))
    layout = ring_layout(sink, window, width, context_length, multiple=segment, tile=tile)
    return RingPlacement(layout, (segment,) * (layout.slots // segment), reach)
