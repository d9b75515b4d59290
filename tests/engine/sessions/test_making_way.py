"""Whose sessions make way, where several owners share memory and places."""

from __future__ import annotations

from collections import Counter

import pytest

from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.session_record import Activity
from tests.support.session_room import BYTES, SPEC, SessionRoom


class Full(Exception):
    """No place is left."""


class ThreePlaces:
    """Three, of which nobody is given the last who has another."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    def would_refuse(self, owner: str, after: str | None = None) -> bool:
        held = self.held.copy()
        if after is not None:
            held[after] -= 1
        return held.total() == 3 or (held.total() == 2 and held[owner] > 0)

    def take(self, owner: str) -> None:
        if self.would_refuse(owner):
            raise Full
        self.held[owner] += 1

    def give_back(self, owner: str) -> None:
        self.held[owner] -= 1
        assert self.held[owner] >= 0


@pytest.fixture
def places() -> ThreePlaces:
    return ThreePlaces()


@pytest.fixture
def placed(places: ThreePlaces) -> SessionRoom:
    """A room with memory for thirty sessions, and places for three."""
    return SessionRoom(30 * BYTES, places=places)


def test_a_newcomer_takes_the_memory_of_who_has_more_than_an_equal_part(room: SessionRoom) -> None:
    """Between two calls already; the neighbour with one session keeps it, though it is older."""
    small = room.create(SPEC, owner="small")
    room.now += 1
    first, second = (room.create(SPEC, owner="greedy") for _ in range(2))
    room.now += 1
    # Whoever only asks is told the same, and ends nobody's.
    room.registry.check_room(room.budget, SPEC, "newcomer")
    with pytest.raises(OutOfKvMemory):
        room.registry.check_room(room.budget, SPEC, "greedy")
    assert room.rested == []
    newcomer = room.create(SPEC, owner="newcomer")
    assert (room.rested, room.ended) == ([first.session_id], [])
    assert set(room.awake()) == {each.session_id for each in (small, second, newcomer)}
    with pytest.raises(OutOfKvMemory):
        room.create(SPEC, owner="newcomer")
    with pytest.raises(OutOfKvMemory):
        room.create(SPEC, owner="fourth")


def test_what_is_worked_on_is_never_taken(room: SessionRoom) -> None:
    greedy = [room.create(SPEC, owner="greedy") for _ in range(3)]
    with (
        room.registry.hold(greedy[0].session_id, Activity.GENERATING),
        room.registry.hold(greedy[1].session_id, Activity.GENERATING),
        room.registry.hold(greedy[2].session_id, Activity.GENERATING),
        pytest.raises(OutOfKvMemory),
    ):
        room.create(SPEC, owner="newcomer")
    assert room.rested == []
    room.create(SPEC, owner="newcomer")
    assert len(room.rested) == 1


def test_an_owner_alone_has_all_and_keeps_it_between_two_calls(room: SessionRoom) -> None:
    for _ in range(3):
        room.create(SPEC, owner="only")
    with pytest.raises(OutOfKvMemory):
        room.create(SPEC, owner="only")
    assert room.rested == []


def test_of_idle_sessions_those_of_who_has_the_most_go_first(room: SessionRoom) -> None:
    room.create(SPEC, owner="small")
    room.now += 1
    older = room.create(SPEC, owner="greedy")
    room.create(SPEC, owner="greedy")
    room.now += 60
    room.registry.fork("s1", owner="small")
    assert (room.rested, room.ended) == ([older.session_id], [])


def test_one_that_gives_way_does_at_once_and_before_all_others(room: SessionRoom) -> None:
    older = room.create(SPEC, owner="greedy")
    room.now += 100
    kept, busy = (room.create(SPEC, owner="greedy") for _ in range(2))
    for each in (kept, busy):
        with room.registry.hold(each.session_id, Activity.GENERATING):
            each.gives_way = True
    with room.registry.hold(busy.session_id, Activity.GENERATING):
        room.create(SPEC, owner="greedy")
    # The older one has been idle for longer than anybody must be.
    assert room.rested == [kept.session_id]
    assert (older.session.is_resting, busy.gives_way) == (False, False)


def test_the_place_of_one_that_gives_way_is_free_at_once(placed: SessionRoom) -> None:
    first, second = (placed.create(SPEC, owner=owner) for owner in ("a", "b"))
    with pytest.raises(Full):
        placed.create(SPEC, owner="a")
    first.gives_way = True
    third = placed.create(SPEC, owner="a")
    assert placed.ended == [(first.session_id, EndReason.MEMORY)]
    assert placed.listed() == [second.session_id, third.session_id]


def test_places_are_held_as_long_as_sessions_and_forks_live(
    placed: SessionRoom, places: ThreePlaces
) -> None:
    first = placed.create(SPEC, owner="a")
    fork = placed.registry.fork(first.session_id, owner="b")
    assert places.held == {"a": 1, "b": 1}
    placed.registry.close(first.session_id)
    placed.now += 600
    placed.registry.sweep(placed.now)
    assert fork.session.end_reason
    assert places.held.total() == 0


def test_what_could_not_be_made_holds_no_place(places: ThreePlaces) -> None:
    room = SessionRoom(BYTES, places=places)
    room.create(SPEC, owner="a")
    with pytest.raises(OutOfKvMemory):
        room.create(SPEC, owner="b")
    with pytest.raises(OutOfKvMemory):
        room.registry.fork("s1", owner="b")
    room.budget.end_reason = EndReason.GROUP
    room.registry.close("s1")
    with pytest.raises(Exception, match="lost with a rank"):
        room.create(SPEC, owner="a")
    assert places.held.total() == 0


def test_a_repeated_request_holds_one_place(placed: SessionRoom, places: ThreePlaces) -> None:
    first = placed.create(SPEC, request_id="r", owner="a")
    assert placed.create(SPEC, request_id="r", owner="a") is first
    assert places.held == {"a": 1}


def test_an_idle_session_of_who_has_the_most_gives_its_place(placed: SessionRoom) -> None:
    small = placed.create(SPEC, owner="small")
    greedy = placed.create(SPEC, owner="greedy")
    placed.create(SPEC, owner="third")
    with pytest.raises(Full):
        placed.create(SPEC, owner="newcomer")
    placed.now += 60
    fork = placed.registry.fork(small.session_id, owner="greedy")
    assert placed.ended == [(greedy.session_id, EndReason.MEMORY)]
    assert fork.session_id in placed.listed()


def test_nothing_ends_for_who_would_be_refused_even_so(placed: SessionRoom) -> None:
    """Nor do the sessions of owners with fewer than who asks."""
    placed.create(SPEC, owner="small")
    first = placed.create(SPEC, owner="greedy")
    placed.now += 60
    with (
        placed.registry.hold(first.session_id, Activity.GENERATING),
        pytest.raises(Full),
    ):
        placed.create(SPEC, owner="greedy")
    assert placed.ended == []
