"""What was refused is refused again without a look at each session, until something changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.sessions import making_way
from kakeya_fleet.engine.sessions.refused_rooms import HOLDS_SECONDS, MOST_KEPT
from kakeya_fleet.engine.sessions.session_record import Activity
from tests.support.session_room import BYTES, SPEC, SessionRoom


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One for each look at who may give way."""
    counted: list[object] = []
    look = making_way.for_memory

    def counting(*records: object, **options: object) -> object:
        counted.append(records)
        return look(*records, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(making_way, "for_memory", counting)
    return counted


def full() -> SessionRoom:
    room = SessionRoom()
    for _ in range(3):
        room.create(SPEC)
    room.now += 20.0
    return room


def refused(room: SessionRoom, owner: str = "") -> dict[str, str]:
    with pytest.raises(OutOfKvMemory) as caught:
        room.registry.check_room(room.budget, SPEC, owner)
    return dict(caught.value.metadata)


def test_whoever_asks_again_is_told_the_same_and_nobody_is_looked_at(
    looks: list[object],
) -> None:
    room = full()
    first = refused(room)
    assert first["retry_after_seconds"] == "40.000"
    assert refused(room) == first
    room.now += HOLDS_SECONDS / 2
    assert refused(room)["retry_after_seconds"] == f"{40 - HOLDS_SECONDS / 2:.3f}"
    assert len(looks) == 1
    room.now += HOLDS_SECONDS / 2
    refused(room)
    assert len(looks) == 2
    # It has less than an equal part of the memory, which the other one's sessions give.
    room.registry.check_room(room.budget, SPEC, "another")


def _ends(room: SessionRoom) -> None:
    room.registry.close("s1")


def _uses_one(room: SessionRoom) -> None:
    with room.registry.hold("s1", Activity.GENERATING) as record:
        record.gives_way = False


def _gives_way(room: SessionRoom) -> None:
    with room.registry.hold("s1", Activity.GENERATING) as record:
        pass
    record.gives_way = True


def _gets_more(room: SessionRoom) -> None:
    room.registry.share(room.budget, 4 * BYTES)


@pytest.mark.parametrize(
    ("change", "has_room"),
    [(_ends, True), (_uses_one, False), (_gives_way, True), (_gets_more, True)],
)
def test_any_change_has_it_looked_for_anew(
    change: Callable[[SessionRoom], None], *, has_room: bool, looks: list[object]
) -> None:
    room = full()
    refused(room)
    change(room)
    if has_room:
        room.registry.check_room(room.budget, SPEC)
    else:
        refused(room)
        assert len(looks) == 2


def test_a_session_that_has_been_idle_for_long_enough_is_found_in_time() -> None:
    room = full()
    room.now += 39.7
    refused(room)
    room.now += 0.3
    room.registry.check_room(room.budget, SPEC)


def test_those_that_are_refused_are_a_bounded_number(looks: list[object]) -> None:
    room = SessionRoom(BYTES)
    room.create(SPEC)
    for number in range(2 * MOST_KEPT):
        refused(room, f"owner {number}")
    assert len(room.registry._memory.refused._kept) <= MOST_KEPT
    assert len(looks) == 2 * MOST_KEPT
