"""Idle sessions that give their memory to others, stay open, and go on where they were."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.making_way import LEAST_IDLE_SECONDS
from kakeya_fleet.engine.sessions.prefill_pace import REMEMBERED_TOKENS, PrefillPace
from kakeya_fleet.engine.sessions.session_record import Activity, SessionRecord
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing
from tests.support.session_room import BYTES, SPEC, SessionRoom, doing

GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=4096, grows=True)
SLAB = hashing.SLAB_BYTES


def read(room: SessionRoom, count: int, owner: str = "") -> SessionRecord[str]:
    """A session whose memory grows, which has read so many tokens."""
    record = room.create(GROWING, owner=owner)
    with room.registry.hold(record.session_id, Activity.APPENDING):
        record.session.append([index % 40 for index in range(count)])
        compute(record)
    return record


def compute(record: SessionRecord[str]) -> None:
    while PrefillTurn(record.session)():
        pass


def spoken(record: SessionRecord[str], count: int) -> list[int]:
    """So many tokens of its stream."""
    compute(record)
    return [
        token
        for _ in range(count)
        for token in VerifyTurn(record.session, Block([], GREEDY, 1))().step.committed
    ]


def test_who_comes_back_goes_on_and_takes_the_memory_of_who_is_idle_then() -> None:
    room = SessionRoom(10 * SLAB)
    first, second = read(room, 40), read(room, 40)
    room.now += 60.0
    third = read(room, 30)
    assert room.rested == [first.session_id]
    assert doing(first) is Activity.RESTING
    assert (first.session.memory_bytes, first.session.pending) == (0, 39)
    room.now += 60.0
    expected = hashing.expected_stream(first.session.history[:], GROWING, 5, GREEDY)
    with room.registry.hold(first.session_id, Activity.GENERATING):
        assert doing(first) is Activity.GENERATING
        assert spoken(first, 5) == expected
    assert first.session.recomputed_count == 39
    assert doing(first) is Activity.IDLE
    assert room.rested == [first.session_id, second.session_id]
    assert (third.session.is_resting, room.ended) == (False, [])


def test_the_room_to_wake_is_made_for_all_of_the_history_at_once() -> None:
    """Not chunk by chunk: what is computed before the last one finds no room is lost time."""
    room = SessionRoom(10 * SLAB)
    first = read(room, 40)
    room.now += 60.0
    busy = read(room, 56)
    text, used = first.session.history[:], room.budget.used_bytes
    with (
        room.registry.hold(busy.session_id, Activity.GENERATING),
        room.registry.hold(first.session_id, Activity.GENERATING),
    ):
        for _ in range(2):
            with pytest.raises(OutOfKvMemory, match="history stays as it is") as caught:
                PrefillTurn(first.session)()
            assert caught.value.metadata["needed_bytes"] == str(5 * SLAB)
            assert float(caught.value.metadata["retry_after_seconds"]) >= 1.0
        with pytest.raises(OutOfKvMemory):
            first.session.append([1] * 10)
        assert (first.session.history[:], room.budget.used_bytes) == (text, used)
        assert first.session.is_resting
    room.registry.close(busy.session_id)
    assert spoken(first, 3) == hashing.expected_stream(text, GROWING, 3, GREEDY)


def test_a_fork_of_one_at_rest_computes_its_own_and_wakes_nobody() -> None:
    room = SessionRoom(12 * SLAB)
    first = read(room, 40)
    room.now += 60.0
    other = read(room, 70)
    room.registry.close(other.session_id)
    assert first.session.is_resting
    fork = room.registry.fork(first.session_id, 20)
    assert spoken(fork, 4) == hashing.expected_stream(
        first.session.history[:20], GROWING, 4, GREEDY
    )
    assert first.session.is_resting
    # They were computed before.
    assert fork.session.recomputed_count == 19


def test_one_at_rest_is_closed_and_ends_after_its_time_like_any_other() -> None:
    room = SessionRoom(10 * SLAB)
    sessions = [read(room, 40), read(room, 40)]
    room.now += 60.0
    third = read(room, 78)
    assert room.rested == [each.session_id for each in sessions]
    assert room.registry.close(sessions[0].session_id) == 40
    room.now += 540.0
    assert room.registry.sweep(room.now) == 1
    with pytest.raises(SessionNotFound, match="time to live"):
        room.registry.get(sessions[1].session_id)
    assert room.listed() == [third.session_id]


def test_it_is_worth_giving_once_it_was_idle_for_as_long_as_it_takes_again() -> None:
    room = SessionRoom(10 * SLAB)
    room.budget.pace.record(39, 39 * 0.5)
    first = read(room, 40)
    room.now += 19.0
    with pytest.raises(OutOfKvMemory) as caught:
        read(room, 50)
    # 39 positions take 19.5 s; the rest of the second, and no sooner than in one.
    assert caught.value.metadata["retry_after_seconds"] == "1.000"
    assert room.rested == []
    room.now += 0.5
    read(room, 50)
    assert room.rested == [first.session_id]


@pytest.mark.parametrize(("a_token", "idle"), [(0.01, LEAST_IDLE_SECONDS), (60.0, 60.0)])
def test_nobody_gives_between_two_calls_nor_waits_for_ever(a_token: float, idle: float) -> None:
    room = SessionRoom(10 * SLAB)
    room.budget.pace.record(100, 100 * a_token)
    first = read(room, 40)
    room.now += idle - 0.1
    with pytest.raises(OutOfKvMemory):
        read(room, 50)
    room.now += 0.1
    read(room, 50)
    assert room.rested == [first.session_id]


def test_who_has_little_to_compute_again_for_its_bytes_gives_first() -> None:
    """A window of the same length costs its whole history, and gives a few bytes."""
    room = SessionRoom(15 * SLAB)
    window = room.create(SPEC)
    with room.registry.hold(window.session_id, Activity.APPENDING):
        window.session.append([1] * 40)
        compute(window)
    room.now += 10.0
    whole = read(room, 40)
    room.now += 60.0
    read(room, 60)
    assert room.rested == [whole.session_id]


def test_of_equals_who_was_away_for_longer_gives_first() -> None:
    room = SessionRoom(10 * SLAB)
    older = read(room, 40)
    room.now += 30.0
    read(room, 40)
    room.now += 60.0
    read(room, 40)
    assert room.rested == [older.session_id]


def test_a_small_owner_wakes_at_the_cost_of_one_with_more_than_an_equal_part() -> None:
    room = SessionRoom(10 * SLAB)
    small = read(room, 24, owner="small")
    room.now += 60.0
    greedy = [read(room, 32, owner="greedy"), read(room, 32, owner="greedy")]
    assert room.rested == [small.session_id]
    with room.registry.hold(small.session_id, Activity.GENERATING):
        assert len(spoken(small, 2)) == 2
    assert room.rested == [small.session_id, greedy[0].session_id]
    with pytest.raises(OutOfKvMemory), room.registry.hold("s2", Activity.GENERATING):
        spoken(greedy[0], 1)


def test_while_an_operation_uses_it_and_once_it_ended_it_gives_nothing() -> None:
    room = SessionRoom()
    record = room.create(SPEC)
    record.session.append([1, 2, 3])
    assert record.session.prefill_feed() is not None
    assert not record.session.rest()
    record.session.not_run()
    assert record.session.rest()
    assert not record.session.rest()
    room.registry.close(record.session_id)
    assert not record.session.is_resting
    with pytest.raises(SessionNotFound, match="closed"):
        record.session.append([4])
    assert room.budget.used_bytes == 0


def test_a_place_is_not_freed_by_resting() -> None:
    """Places count sessions, so whoever needs one ends another."""
    room = SessionRoom(BYTES)
    first = room.create(SPEC)
    room.now += 60.0
    second = room.create(SPEC)
    assert (room.rested, room.ended) == ([first.session_id], [])
    room.registry.close(first.session_id)
    assert room.ended == [(first.session_id, EndReason.CLOSED)]
    assert room.listed() == [second.session_id]


def test_the_pace_is_of_the_latest_tokens() -> None:
    pace = PrefillPace()
    assert pace.seconds(10) is None
    pace.record(100, 1.0)
    assert pace.seconds(50) == pytest.approx(0.5)
    pace.record(20 * REMEMBERED_TOKENS, 40.0 * REMEMBERED_TOKENS)
    assert pace.seconds(3) == pytest.approx(6.0, rel=1e-3)
