"""Where a forward's keys go, and which segments they never go to again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.positions import ContiguousPlacement, Placement


@dataclass(frozen=True, slots=True)
class Write:
    """`count` consecutive slots of one segment that take consecutive tokens of a forward."""

    segment: int
    slot: int
    token: int
    count: int


def writes(placement: Placement, start: int, count: int) -> list[Write]:
    """Where `count` positions from `start` go, in as few pieces as there can be."""
    found: list[Write] = []
    borders = placement.segments
    token = 0
    while token < count:
        slot, segment = placement.slot(start + token), 0
        while slot >= borders[segment]:
            slot -= borders[segment]
            segment += 1
        # A ring goes back to its beginning where a segment ends, the last one.
        piece = min(count - token, borders[segment] - slot)
        found.append(Write(segment, slot, token, piece))
        token += piece
    return found


def final_segments(placement: Placement, length: int, written_from: int) -> int:
    """How many segments, the first ones, are never written again.

    Neither by a fork at `length`, nor by its source, which writes from
    `written_from` on. Every slot of a ring is written again.
    """
    if not isinstance(placement, ContiguousPlacement):
        return 0
    end, count = placement.origin, 0
    for keys in placement.segments:
        end += keys
        if end > min(length, written_from):
            break
        count += 1
    return count
