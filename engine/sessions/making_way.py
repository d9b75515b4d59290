"""Which sessions give way to another, and in which order.

One that can rest (`Session.rest`) loses its memory and stays; others end. Resting costs what is
computed again, so it is worth its memory to others as soon as the session has been idle for as
long as that takes: whoever rests then waits at most as long again as it was away (ski rental,
Karlin and others, "Competitive snoopy caching", 1988).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from kakeya_fleet.engine.sessions.session_record import SessionRecord

Opened = TypeVar("Opened")


LEAST_IDLE_SECONDS = 5.0
"""A client between two calls of one turn is not idle."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks for `needed_bytes` of a budget that sessions of several owners share."""

    owner: str
    needed_bytes: int
    budget_bytes: int


def idle(
    records: Collection[SessionRecord[Opened]], *, now: float, min_idle_seconds: float
) -> list[SessionRecord[Opened]]:
    """Those that give way for anybody's sake, in no order."""
    return [
        record for record in records if not record.held and may_rest(record, now, min_idle_seconds)
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
    `min_idle_seconds`, or where they rest, for `idle_seconds_to_rest`; and at once those of owners
    with more than an equal part of the budget, where `asking` would not have more than that
    itself. Sessions that `gives_way` go before all others; then the owner with the most bytes
    loses first; of its sessions those that rest before those that end, and of these the ones with
    the least `regret`, then the least recently used.
    """
    own = {record.session_id: _held_bytes(record) for record in records}
    held: Counter[str] = Counter()
    for record in records:
        held[record.owner] += own[record.session_id]
    most = None
    if asking is not None:
        equal = asking.budget_bytes // len(held.keys() | {asking.owner})
        if held[asking.owner] + asking.needed_bytes <= equal:
            most = equal
    going = [
        record
        for record in records
        if not record.held
        and own[record.session_id]
        and (
            may_rest(record, now, min_idle_seconds)
            or (most is not None and held[record.owner] > most)
        )
    ]
    return sorted(
        going,
        key=lambda record: (
            not record.gives_way,
            -held[record.owner],
            not record.session.can_rest,
            regret(record, own[record.session_id], now),
            record.last_used_at,
        ),
    )


def may_rest(record: SessionRecord[Opened], now: float, min_idle_seconds: float) -> bool:
    """Whether it has been idle for long enough, or for any time where it was said to give way."""
    idle_seconds = record.idle_seconds(now)
    return record.gives_way or idle_seconds >= idle_seconds_to_rest(record, min_idle_seconds)


def idle_seconds_to_rest(record: SessionRecord[Opened], min_idle_seconds: float) -> float:
    """Idle for so long a session gives way: what computing it again takes, where that is known.

    Never more than `min_idle_seconds`, nor less than `LEAST_IDLE_SECONDS` of them.
    """
    again = record.budget.pace.seconds(record.session.computed_count)
    if again is None or not record.session.can_rest:
        return min_idle_seconds
    return min(max(again, LEAST_IDLE_SECONDS), min_idle_seconds)


def regret(record: SessionRecord[Opened], held_bytes: int, now: float) -> float:
    """What its memory is worth to it: positions computed again, a byte and an idle second.

    Whoever was away for long is the less likely to be back next (GreedyDual-Size, Cao and Irani,
    1997, with the time idle for the age).
    """
    idle = max(record.idle_seconds(now), 1.0)
    return record.session.computed_count / (held_bytes * idle)


def _held_bytes(record: SessionRecord[Opened]) -> int:
    session = record.session
    return 0 if session.is_resting else sum(slab.nbytes for slab in session.slabs)


def for_a_place(
    records: Collection[SessionRecord[Opened]], owner: str, *, now: float, min_idle_seconds: float
) -> list[SessionRecord[Opened]]:
    """Those that may go where `owner` finds too many sessions, the first to go first.

    Sessions that are idle for `min_idle_seconds`, or give way at once, of `owner` itself and of
    those who have more; of who has the most before others, those that give way at once before
    others, the least recently used first.
    """
    counts = Counter(record.owner for record in records)
    going = [
        record
        for record in records
        if not record.held
        and (record.gives_way or record.idle_seconds(now) >= min_idle_seconds)
        and (record.owner == owner or counts[record.owner] > counts[owner])
    ]
    return sorted(
        going,
        key=lambda record: (-counts[record.owner], not record.gives_way, record.last_used_at),
    )
