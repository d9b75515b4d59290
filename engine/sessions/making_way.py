"""Which sessions may be evicted for another, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from kakeya_fleet.engine.sessions.session_record import SessionRecord

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks for `needed_bytes` of a budget that sessions of several owners share."""

    owner: str
    needed_bytes: int
    budget_bytes: int


def idle(
    records: Collection[SessionRecord[Opened]], *, now: float, min_idle_seconds: float
) -> list[SessionRecord[Opened]]:
    """Those that may go for anybody's sake, in no order."""
    return [
        record
        for record in records
        if not record.held and record.idle_seconds(now) >= min_idle_seconds
    ]


def for_memory(
    records: Collection[SessionRecord[Opened]],
    *,
    now: float,
    min_idle_seconds: float,
    asking: Asking | None = None,
) -> list[SessionRecord[Opened]]:
    """Those of one verifier that may go for memory, the first to go first.

    Nobody's sessions go while they are held. Of others those that are idle for
    `min_idle_seconds`, and at once those of owners with more than an equal part of the
    budget, where `asking` would not have more than that itself. The owner with the most
    bytes loses first, its least recently used session before its others.
    """
    held: Counter[str] = Counter()
    for record in records:
        held[record.owner] += sum(slab.nbytes for slab in record.session.slabs)
    most = None
    if asking is not None:
        equal = asking.budget_bytes // len(held.keys() | {asking.owner})
        if held[asking.owner] + asking.needed_bytes <= equal:
            most = equal
    going = [
        record
        for record in records
        if not record.held
        and (
            record.idle_seconds(now) >= min_idle_seconds
            or (most is not None and held[record.owner] > most)
        )
    ]
    return sorted(going, key=lambda record: (-held[record.owner], record.last_used_at))


def for_a_place(
    records: Collection[SessionRecord[Opened]], owner: str, *, now: float, min_idle_seconds: float
) -> list[SessionRecord[Opened]]:
    """Those that may go where `owner` finds too many sessions, the first to go first.

    Sessions that are idle for `min_idle_seconds`, of `owner` itself and of those who have
    more; of who has the most before others, the least recently used first.
    """
    counts = Counter(record.owner for record in records)
    going = [
        record
        for record in records
        if not record.held
        and record.idle_seconds(now) >= min_idle_seconds
        and (record.owner == owner or counts[record.owner] > counts[owner])
    ]
    return sorted(going, key=lambda record: (-counts[record.owner], record.last_used_at))
