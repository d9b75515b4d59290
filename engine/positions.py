"""Which query attends to which key, and where a position's key/value is kept.

Everything is a rule about absolute positions. Nothing here depends on how a
history was cut into forwards: that is what makes a stream a function of the
history alone.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOT_MULTIPLE = 64
"""Key slots come in multiples of this: with fewer, kernels change their rounding."""


def attends(query: int, key: int, sink: int, window: int) -> bool:
    """Whether the query at position `query` attends to the key at position `key`.

    The first `sink` positions and the last `window` (the query's own included)
    are seen. Source: Xiao et al., "Efficient Streaming Language Models with
    Attention Sinks" (2023), stated on absolute positions.
    """
    return key <= query and (key < sink or key > query - window)


def resident_count(length: int, sink: int, window: int) -> int:
    """Positions below `length` that the query at position `length` attends to."""
    in_sink = min(length, sink)
    first_in_window = max(sink, length - window + 1)
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
    provisional tokens are rejected and their positions are written anew:

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
    sink: int, window: int, width: int, context_length: int, multiple: int = SLOT_MULTIPLE
) -> RingLayout:
    """The layout for queries in forwards of at most `width` tokens.

    The slots are a multiple of `multiple`. `sink` and `window` beyond
    `context_length` take no slots: no position is ever there.
    """
    kept_sink = min(sink, context_length)
    kept_window = min(window, context_length)
    slots = round_up(kept_sink + kept_window + width - 1, multiple)
    return RingLayout(sink=kept_sink, window=kept_window, ring=slots - kept_sink)
