"""Who gives way to whom: the idle, the least recently used, as few as free enough."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import (
    OutOfKvMemory,
    SessionNotFound,
)
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.session_record import (
    Activity,
    SessionRecord,
)
from kakeya_fleet.engine.sessions.turns import PrefillTurn
from tests.support.session_room import BYTES, SPEC, SessionRoom, doing

FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=96)
SLAB = 8 * 16
PREFIX = [(5 * index) % 48 for index in range(41)]


def prefilled(record: SessionRecord[str]) -> SessionRecord[str]:
    """40 positions computed, of which the last forward, which may be undone, wrote one."""
    for tokens in (PREFIX[:-1], PREFIX[-1:]):
        record.session.append(tokens)
        PrefillTurn(record.session)()
    return record


def test_idle_sessions_are_evicted_by_the_sweep_and_held_ones_never(room: SessionRoom) -> None:
    room.create(SPEC)
    room.create(SPEC)
    room.now += 599.0
    assert room.registry.sweep(room.now) == 0
    with room.registry.hold("s2", Activity.GENERATING) as record:
        room.now += 1e6
        assert doing(record) is Activity.GENERATING
        assert record.idle_seconds(room.now) == 0.0
        assert room.registry.sweep(room.now) == 1
    assert room.listed() == ["s2"]
    with pytest.raises(SessionNotFound, match="time to live"):
        room.registry.get("s1")
    room.now += 600.0
    assert doing(record) is Activity.IDLE
    assert room.registry.sweep(room.now) == 1
    assert room.count(EndReason.IDLE) == 2
    assert room.budget.used_bytes == 0


def test_the_least_recently_used_idle_session_makes_room(room: SessionRoom) -> None:
    for _ in range(3):
        room.create(SPEC)
    room.now += 30.0
    with room.registry.hold("s1", Activity.APPENDING):
        room.now += 40.0
    # s1 was used now, s2 and s3 are idle for 70 s.
    assert room.create(SPEC).session_id == "s4"
    assert room.listed() == ["s1", "s2", "s3", "s4"]
    assert (room.rested, room.ended) == (["s2"], [])
    assert room.budget.used_bytes == 3 * BYTES


def test_what_is_in_use_gives_nothing_and_the_answer_says_when_to_come_back(
    room: SessionRoom,
) -> None:
    for _ in range(3):
        room.create(SPEC)
    room.now += 20.0
    with pytest.raises(OutOfKvMemory) as caught:
        room.create(SPEC)
    assert caught.value.metadata == {
        "needed_bytes": str(BYTES),
        "free_bytes": "0",
        "retry_after_seconds": "40.000",
    }
    assert len(room.registry) == 3
    room.now += 40.0
    room.create(SPEC)


def test_nobody_gives_way_in_vain(room: SessionRoom) -> None:
    room.create(SPEC)
    room.now += 100.0
    room.create(SPEC)
    room.create(SPEC)
    # Two sessions' room is needed and only one may be evicted.
    wide = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=30)
    with pytest.raises(OutOfKvMemory):
        room.create(wide)
    assert room.awake() == ["s1", "s2", "s3"]


def test_forks_of_one_history_are_admitted_by_what_they_do_not_share() -> None:
    room = SessionRoom(budget=(12 + 8 + 8) * SLAB)
    origin = prefilled(room.create(FULL))
    assert room.budget.used_bytes == 12 * SLAB
    # Four full slabs are read by all, the others are each fork's own.
    forks = [room.registry.fork("s1"), room.registry.fork("s1", 40)]
    assert room.budget.used_bytes == (12 + 8 + 8) * SLAB
    assert sum(fork.session.memory_bytes for fork in forks) == 2 * 12 * SLAB
    with pytest.raises(OutOfKvMemory) as caught:
        room.registry.fork("s1")
    assert caught.value.metadata["needed_bytes"] == str(8 * SLAB)
    assert origin.session.memory_bytes == 12 * SLAB
    room.registry.close("s1")
    assert room.budget.used_bytes == (12 + 8) * SLAB


def test_sessions_that_share_give_way_together_when_one_frees_too_little() -> None:
    room = SessionRoom(budget=20 * SLAB)
    prefilled(room.create(FULL))
    room.registry.fork("s1")
    assert room.budget.used_bytes == 20 * SLAB
    room.now += 100.0
    with room.registry.hold("s1", Activity.APPENDING):
        with pytest.raises(OutOfKvMemory):
            room.create(CacheSpec(CacheKind.CONTIGUOUS, capacity=72))
        assert room.rested == []
        # Eight slabs are the fork's own.
        room.create(CacheSpec(CacheKind.CONTIGUOUS, capacity=64))
    assert room.awake() == ["s1", "s3"]
    assert room.budget.used_bytes == 20 * SLAB


def test_a_family_that_shares_all_it_needs_goes_as_a_whole() -> None:
    room = SessionRoom(budget=20 * SLAB)
    prefilled(room.create(FULL))
    room.registry.fork("s1")
    room.now += 100.0
    room.create(CacheSpec(CacheKind.CONTIGUOUS, capacity=72))
    assert room.awake() == ["s3"]
    assert room.budget.used_bytes == 9 * SLAB


def test_the_most_recent_of_the_chosen_that_is_not_needed_is_spared() -> None:
    """The oldest frees a little, the next all that is needed: only that one goes."""
    room = SessionRoom(budget=20 * SLAB)
    for capacity in (16, 96, 48):
        room.create(CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity))
        room.now += 100.0
    room.create(FULL)
    assert room.awake() == ["s1", "s3", "s4"]


def test_what_would_give_way_counts_as_available() -> None:
    room = SessionRoom(budget=26 * SLAB)
    prefilled(room.create(FULL))
    room.registry.fork("s1")
    assert room.registry.available_bytes(room.budget) == 6 * SLAB
    room.now += 100.0
    with room.registry.hold("s2", Activity.GENERATING):
        assert room.registry.available_bytes(room.budget) == (6 + 8) * SLAB
    # The other one was used just now.
    assert room.registry.available_bytes(room.budget) == (6 + 8) * SLAB
    room.now += 100.0
    assert room.registry.available_bytes(room.budget) == 26 * SLAB
