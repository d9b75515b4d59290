"""Sessions whose memory follows their histories, together in one budget."""

from __future__ import annotations

import itertools

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import InvariantViolated, OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.session_record import Activity, SessionRecord
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, Verified, VerifyTurn, run_turns
from tests.support import hash_verifier as hashing

GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=4096, grows=True)
BOUNDED = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
SLABS = 8


class Room:
    """A registry with room for eight slabs of eight positions, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ended: list[tuple[str, EndReason]] = []
        self.rested: list[str] = []
        self.verifier = hashing.HashVerifier()
        self.slab = hashing.SLAB_BYTES
        numbers = itertools.count(1)
        self.registry: SessionRegistry[None] = SessionRegistry(
            clock=lambda: self.now,
            ids=lambda: f"s{next(numbers)}",
            min_idle_seconds=60.0,
            on_end=lambda record, reason: self.ended.append((record.session_id, reason)),
            on_rest=lambda record, _: self.rested.append(record.session_id),
        )
        self.budget = self.registry.add_verifier(self.verifier, SLABS * self.slab)

    def reads(self, count: int) -> SessionRecord[None]:
        """A session that has read so many tokens."""
        record = self.registry.create(self.budget, GROWING)
        with self.registry.hold(record.session_id, Activity.APPENDING):
            record.session.append([index % 40 for index in range(count)])
            while PrefillTurn(record.session)():
                pass
        return record


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_session_takes_what_its_history_needs_and_no_more(room: Room) -> None:
    record = room.registry.create(room.budget, GROWING)
    assert record.session.memory_bytes == room.budget.used_bytes == room.slab
    grown = room.reads(20)
    assert grown.session.memory_bytes == 3 * room.slab
    assert room.budget.used_bytes == 4 * room.slab
    with pytest.raises(OutOfKvMemory):
        room.registry.create(room.budget, BOUNDED)


def test_room_to_grow_is_made_of_the_least_recently_used_idle_session(room: Room) -> None:
    for _ in range(3):
        room.reads(16)
        room.now += 1.0
    room.now += 100.0
    last = room.reads(46)
    assert (room.rested, room.ended) == (["s1", "s2"], [])
    assert last.session.memory_bytes == 6 * room.slab


def test_an_append_without_room_appends_nothing_and_says_what_mends_it(room: Room) -> None:
    busy = room.reads(40)
    asking = room.reads(8)
    with pytest.raises(OutOfKvMemory, match="stays as it is") as caught:
        asking.session.append([1] * 20)
    assert caught.value.metadata == {
        "needed_bytes": str(3 * room.slab),
        "free_bytes": str(2 * room.slab),
        "retry_after_seconds": "60.000",
    }
    assert (len(asking.session.history), room.ended) == (8, [])
    # Neither has ended, and what fits is taken.
    assert asking.session.append([1] * 10) == 18
    assert len(busy.session.history) == 40


def test_a_generation_without_room_stops_between_tokens_and_goes_on_when_there_is_some(
    room: Room,
) -> None:
    asking, other = room.reads(30), room.reads(32)
    text = asking.session.history[:]
    expected = hashing.expected_stream(text, GROWING, 12, GREEDY)
    committed: list[int] = []

    def one_more() -> None:
        step = VerifyTurn(asking.session, Block([], GREEDY, 1))().step
        committed.extend(step.committed)

    with pytest.raises(OutOfKvMemory):
        for _ in range(12):
            one_more()
    assert committed == expected[: len(committed)]
    assert asking.session.history[:] == [*text, *committed]
    assert asking.session.memory_bytes == 4 * room.slab
    room.registry.close(other.session_id)
    while len(committed) < 12:
        one_more()
    assert committed == expected


def test_of_two_that_grow_in_one_forward_into_the_last_room_one_goes_on(room: Room) -> None:
    one, other, _third = room.reads(24), room.reads(24), room.reads(8)
    for record in (one, other):
        while len(record.session.history) < 25:
            VerifyTurn(record.session, Block([], GREEDY, 1))()
    texts = [record.session.history[:] for record in (one, other)]
    block = Block([], GREEDY, 1)
    turns = [VerifyTurn(record.session, block, lambda: room.now) for record in (one, other)]
    first, second = run_turns([(turn, 1) for turn in turns])
    assert first.error is None
    expected = hashing.expected_stream(texts[0], GROWING, 1, GREEDY)
    assert isinstance(first.result, Verified)
    assert list(first.result.step.committed) == expected
    assert isinstance(second.error, OutOfKvMemory)
    assert other.session.history[:] == texts[1]
    room.registry.close(one.session_id)
    (again,) = run_turns([(turns[1], 1)])
    assert isinstance(again.result, Verified)
    assert list(again.result.step.committed) == hashing.expected_stream(
        texts[1], GROWING, 1, GREEDY
    )


def test_room_that_is_asked_for_is_taken_at_once_and_no_token_lacks_it(room: Room) -> None:
    record = room.registry.create(room.budget, GROWING)
    with room.registry.hold(record.session_id, Activity.APPENDING):
        record.session.append([index % 40 for index in range(20)], room=28)
        assert record.session.memory_bytes == 6 * room.slab
        while PrefillTurn(record.session)():
            pass
    room.reads(16)
    with pytest.raises(OutOfKvMemory):
        room.registry.create(room.budget, GROWING)
    text = record.session.history[:]
    committed = [
        token
        for _ in range(28)
        for token in VerifyTurn(record.session, Block([], GREEDY, 1))().step.committed
    ]
    assert committed == hashing.expected_stream(text, GROWING, 28, GREEDY)


def test_room_that_is_not_there_appends_nothing(room: Room) -> None:
    busy, asking = room.reads(40), room.reads(8)
    with pytest.raises(OutOfKvMemory, match="its history stays as it is"):
        asking.session.append([1] * 4, room=40)
    assert (len(asking.session.history), asking.session.memory_bytes) == (8, room.slab)
    assert len(busy.session.history) == 40
    # What it asks for is no more than the longest history has.
    with pytest.raises(OutOfKvMemory) as caught:
        asking.session.append([1] * 4, room=1 << 30)
    assert int(caught.value.metadata["needed_bytes"]) == (4096 // 8 - 1) * room.slab


def test_room_is_made_of_idle_sessions_and_given_back_at_rest(room: Room) -> None:
    first = room.reads(24)
    room.now += 100.0
    second = room.reads(8)
    with room.registry.hold(second.session_id, Activity.APPENDING):
        second.session.append([1] * 4, room=44)
    assert room.rested == [first.session_id]
    assert second.session.memory_bytes == 7 * room.slab
    assert second.session.rest()
    assert room.budget.used_bytes == 0
    while PrefillTurn(second.session)():
        pass
    assert second.session.memory_bytes == 2 * room.slab


def test_a_fork_holds_what_its_text_needs_and_both_grow_apart(room: Room) -> None:
    origin = room.reads(20)
    fork = room.registry.fork(origin.session_id, 10)
    assert fork.session.memory_bytes == 2 * room.slab
    # Its two are those of the origin, which wrote them in its last forward: each wants its own.
    assert room.budget.used_bytes == 5 * room.slab
    for record in (origin, fork):
        text = record.session.history[:]
        expected = hashing.expected_stream(text, GROWING, 9, GREEDY)
        while PrefillTurn(record.session)():
            pass
        assert [
            token
            for _ in range(9)
            for token in VerifyTurn(record.session, Block([], GREEDY, 1))().step.committed
        ] == expected
    room.registry.close(origin.session_id)
    assert room.budget.used_bytes == fork.session.memory_bytes
    room.registry.close(fork.session_id)
    assert room.budget.used_bytes == 0


@pytest.mark.parametrize("positions", [38, 257], ids=["too few", "too many"])
def test_bytes_that_no_position_accounts_for_end_the_session(
    room: Room, monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    """It holds 39 positions; a segment of a real model has 256."""
    record = room.reads(40)
    claimed = property(lambda _: positions * hashing.SLOT_BYTES)
    monkeypatch.setattr(hashing.HashCache, "memory_bytes", claimed)
    with pytest.raises(InvariantViolated, match="bytes"):
        VerifyTurn(record.session, Block([], GREEDY, 1))()
    with pytest.raises(SessionNotFound):
        room.registry.get(record.session_id)


def test_prefill_that_lost_its_room_to_another_goes_on_when_it_has_some(room: Room) -> None:
    asking, other = room.reads(8), room.reads(8)
    with room.registry.hold(asking.session_id, Activity.APPENDING):
        asking.session.append([3] * 40)
        with room.registry.hold(other.session_id, Activity.APPENDING):
            other.session.append([4] * 24)
            while PrefillTurn(other.session)():
                pass
        turn = PrefillTurn(asking.session)
        (ended,) = run_turns([(turn, 64)])
        assert isinstance(ended.error, OutOfKvMemory)
        assert len(asking.session.history) == 48
        room.registry.close(other.session_id)
        while PrefillTurn(asking.session)():
            pass
    expected = hashing.expected_stream(asking.session.history[:], GROWING, 3, GREEDY)
    got = [
        t
        for _ in range(3)
        for t in VerifyTurn(asking.session, Block([], GREEDY, 1))().step.committed
    ]
    assert got == expected
