"""Which archives share a session's evicted positions, and how long a layer waits for them.

A layer asks the archives one after the other, since each goes on with what the one
before has summed up: their round trips add up. So few and near ones are best. An
archive holds whole chunks of 8,192 positions; only the last may be cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.fleet.placement.kv_memory import slots

BOUNDARY_POSITIONS = 8192
"""Ranges of archives begin and end at multiples of it: attention is summed up in such chunks."""


@dataclass(frozen=True, slots=True)
class ArchiveShare:
    """An archive of the positions `first` to `end`, exclusive."""

    candidate: ArchiveCandidate
    first: int
    end: int


def needed_bytes(end: int, bytes_per_position: int) -> int:
    """Bytes of an archive that keeps all positions below `end`, whole segments."""
    return slots(end) * bytes_per_position


def share_positions(
    candidates: Sequence[ArchiveCandidate],
    first: int,
    end: int,
    bytes_per_position: int,
) -> tuple[ArchiveShare, ...] | None:
    """The archives for which a layer waits least, with room for all positions below `end`.

    In ascending order of positions, the nearest first; positions below `first` are
    kept elsewhere. One with room for all is better than several unless these are
    nearer all together. Archives of other nodes come before the verifier's own, and
    measured ways before others. None when all together lack the room.
    """
    sets = [
        [candidate]
        for candidate in candidates
        if _reach(candidate, 0, end, bytes_per_position) >= end
    ]
    gathered = _gathered(candidates, end, bytes_per_position)
    if gathered is not None:
        sets.append(gathered)
    if not sets:
        return None
    return _shares(min(sets, key=_cost), first, end, bytes_per_position)


def wait_seconds(shares: Sequence[ArchiveShare]) -> float | None:
    """Seconds that a layer waits for all of them; None when one of the ways is not measured."""
    trips = [share.candidate.round_trip_seconds for share in shares]
    return None if None in trips else sum(trip for trip in trips if trip is not None)


def _reach(candidate: ArchiveCandidate, start: int, end: int, bytes_per_position: int) -> int:
    """Positions below this fit from `start` on, a multiple of the boundary."""
    if needed_bytes(end - start, bytes_per_position) <= candidate.free_bytes:
        return end
    chunks = candidate.free_bytes // (BOUNDARY_POSITIONS * bytes_per_position)
    return min(end, start + chunks * BOUNDARY_POSITIONS)


def _gathered(
    candidates: Sequence[ArchiveCandidate], end: int, bytes_per_position: int
) -> list[ArchiveCandidate] | None:
    """The nearest that have the room together, less those that are not needed."""
    chosen: list[ArchiveCandidate] = []
    for candidate in sorted(candidates, key=lambda one: _cost([one])):
        if candidate.free_bytes >= BOUNDARY_POSITIONS * bytes_per_position:
            chosen.append(candidate)
        if _hold(chosen, end, bytes_per_position):
            break
    else:
        return None
    for candidate in reversed(list(chosen)):
        rest = [one for one in chosen if one is not candidate]
        if _hold(rest, end, bytes_per_position):
            chosen = rest
    return chosen


def _hold(candidates: Sequence[ArchiveCandidate], end: int, bytes_per_position: int) -> bool:
    reached = 0
    for candidate in candidates:
        reached = _reach(candidate, reached, end, bytes_per_position)
    return reached >= end


def _shares(
    candidates: Sequence[ArchiveCandidate], first: int, end: int, bytes_per_position: int
) -> tuple[ArchiveShare, ...]:
    shares: list[ArchiveShare] = []
    start = 0
    for candidate in candidates:
        reached = _reach(candidate, start, end, bytes_per_position)
        shares.append(ArchiveShare(candidate, max(first, start), reached))
        start = reached
    return tuple(shares)


def _cost(candidates: Sequence[ArchiveCandidate]) -> tuple[bool, int, float, int, list[str]]:
    """Sorts the best set first."""
    trips = [candidate.round_trip_seconds for candidate in candidates]
    return (
        any(candidate.is_own for candidate in candidates),
        trips.count(None),
        sum(trip for trip in trips if trip is not None),
        len(candidates),
        [candidate.node_id for candidate in candidates],
    )
