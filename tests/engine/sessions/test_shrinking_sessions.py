"""Sessions that may keep less where memory is short: when they do, and what they say then."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.errors import BadParameters, OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.proposers.local_source import run_inline
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.session_record import Activity, SessionRecord
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.session_room import SPEC as SMALLER
from tests.support.session_room import SessionRoom
from tests.support.ticking_clock import TickingClock

WHOLE = CacheSpec(CacheKind.CONTIGUOUS, capacity=4096, grows=True)
AT_ONCE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
SAMPLED = SamplingParameters(temperature=1.0, seed=4)
"""The favoured token of greedy streams would hide what they are made of."""
SLAB = hashing.SLAB_BYTES
LEAST = 3 * SLAB
"""What the smaller one takes, whatever its history."""


def text(count: int) -> list[int]:
    return [(7 * index) % 48 for index in range(count)]


def read(room: SessionRoom, count: int, smaller: CacheSpec | None = SMALLER) -> SessionRecord[str]:
    """A session whose memory grows, which has read so many tokens."""
    record = room.create(WHOLE, smaller=smaller)
    with room.registry.hold(record.session_id, Activity.APPENDING):
        record.session.append(text(count))
        compute(record)
    return record


def compute(record: SessionRecord[str]) -> None:
    while PrefillTurn(record.session)():
        pass


def spoken(room: SessionRoom, record: SessionRecord[str], count: int) -> list[int]:
    """So many tokens of its stream."""
    with room.registry.hold(record.session_id, Activity.GENERATING):
        compute(record)
        return [
            token
            for _ in range(count)
            for token in VerifyTurn(record.session, Block([], SAMPLED, 1))().step.committed
        ]


def of(history: list[int], spec: CacheSpec, count: int) -> list[int]:
    return hashing.expected_stream(history, spec, count, SAMPLED)


def test_smaller_is_as_small_as_that() -> None:
    room = SessionRoom()
    assert room.verifier.bytes_needed(SMALLER) == LEAST
    assert of(text(40), WHOLE, 5) != of(text(40), SMALLER, 5)


def test_it_wakes_smaller_where_its_memory_is_not_free_and_nobody_rests_for_it() -> None:
    room = SessionRoom(10 * SLAB)
    first = read(room, 40)
    room.now += 60.0
    second = read(room, 50)
    room.now += 60.0
    assert (room.rested, first.session.has_shrunk) == ([first.session_id], False)
    assert spoken(room, first, 5) == of(text(40), SMALLER, 5)
    assert (first.session.has_shrunk, first.session.memory_bytes) == (True, LEAST)
    assert first.session.recomputed_count == 39
    assert not second.session.is_resting


def test_it_wakes_as_it_was_where_its_memory_is_free() -> None:
    room = SessionRoom(8 * SLAB)
    first = read(room, 40)
    room.now += 60.0
    second = read(room, 50)
    room.registry.close(second.session_id)
    assert spoken(room, first, 5) == of(text(40), WHOLE, 5)
    assert not first.session.has_shrunk


def test_one_that_may_not_is_never_smaller() -> None:
    room = SessionRoom(6 * SLAB)
    record = read(room, 40, smaller=None)
    with pytest.raises(OutOfKvMemory):
        record.session.append(text(20))
    assert not record.session.can_shrink
    with pytest.raises(ValueError, match="cannot shrink"):
        record.session.shrink()
    assert spoken(room, record, 5) == of(text(40), WHOLE, 5)


def test_an_append_that_finds_no_room_makes_it_smaller() -> None:
    room = SessionRoom(6 * SLAB)
    record = read(room, 40)
    with room.registry.hold(record.session_id, Activity.APPENDING):
        assert record.session.append(text(20)) == 60
    assert record.session.has_shrunk
    assert spoken(room, record, 5) == of([*text(40), *text(20)], SMALLER, 5)
    assert room.budget.used_bytes == LEAST


async def test_room_that_went_to_others_before_it_was_computed_makes_it_smaller() -> None:
    room = SessionRoom(10 * SLAB)
    record = room.create(WHOLE, smaller=SMALLER)
    driver = SessionDriver(run_inline, TickingClock())
    with room.registry.hold(record.session_id, Activity.APPENDING):
        record.session.append(text(60))
        other = read(room, 48, smaller=None)
        await driver.prefill(record.session)
    assert record.session.has_shrunk
    assert spoken(room, record, 5) == of(text(60), SMALLER, 5)
    assert not other.session.is_resting


@pytest.mark.parametrize("drafts", [False, True], ids=["alone", "drafted"])
async def test_a_generation_goes_on_as_the_smaller_one_does_with_its_history(
    drafts: bool,
) -> None:
    """Wherever in it that is; with every token of both parts, once."""
    room = SessionRoom(6 * SLAB)
    record = read(room, 40)
    whole = of(text(40), WHOLE, 30)
    source: DraftSource | None = None
    if drafts:
        source = sources.AdversarialSource([*text(40), *whole], 48)
    with room.registry.hold(record.session_id, Activity.GENERATING):
        tokens, done = await streams.collect(
            record.session, source, streams.parameters(30, sampling=SAMPLED), run=run_inline
        )
    assert record.session.has_shrunk
    # 48 positions fit: those of the 49th and later tokens are of the smaller one.
    before = [count for count in range(10) if tokens[:count] == whole[:count]][-1]
    assert tokens[before:] == of([*text(40), *whole[:before]], SMALLER, 30 - before)
    assert before == 9 or (drafts and before > 0)
    assert done.history_length == 70


def test_one_that_is_opened_where_its_memory_is_not_free_is_smaller_from_the_start() -> None:
    room = SessionRoom(10 * SLAB)
    idle = read(room, 40)
    room.now += 60.0
    room.registry.check_room(room.budget, AT_ONCE, smaller=SMALLER)
    record = room.create(AT_ONCE, smaller=SMALLER)
    assert record.session.has_shrunk
    assert not idle.session.is_resting
    record.session.append(text(60))
    assert spoken(room, record, 4) == of(text(60), SMALLER, 4)
    # One that may not has another rest.
    room.registry.close(record.session_id)
    assert not room.create(AT_ONCE).session.has_shrunk
    assert idle.session.is_resting


def test_where_even_the_smaller_one_has_no_room_it_is_refused_and_stays_as_it_is() -> None:
    room = SessionRoom(10 * SLAB)
    first = read(room, 40)
    room.now += 60.0
    busy = read(room, 60)
    with room.registry.hold(busy.session_id, Activity.GENERATING):
        with pytest.raises(OutOfKvMemory, match="history stays as it is"):
            spoken(room, first, 1)
        with pytest.raises(OutOfKvMemory):
            room.create(AT_ONCE, smaller=SMALLER)
        with pytest.raises(OutOfKvMemory):
            room.registry.check_room(room.budget, AT_ONCE, smaller=SMALLER)
    room.registry.close(busy.session_id)
    assert spoken(room, first, 5) == of(text(40), WHOLE, 5)


def test_a_request_that_is_repeated_has_its_session_however_it_is_kept() -> None:
    room = SessionRoom(10 * SLAB)
    read(room, 40)
    first = room.create(AT_ONCE, request_id="once", smaller=SMALLER)
    assert first.session.has_shrunk
    assert room.create(AT_ONCE, request_id="once", smaller=SMALLER) is first


def test_forks_may_shrink_as_their_origins_may() -> None:
    room = SessionRoom(12 * SLAB)
    first = read(room, 40)
    fork = room.registry.fork(first.session_id, 20)
    assert fork.session.can_shrink
    first.session.shrink()
    late = room.registry.fork(first.session_id, 30)
    assert late.session.has_shrunk
    assert spoken(room, late, 4) == of(text(30), SMALLER, 4)
    assert spoken(room, fork, 4) == of(text(20), WHOLE, 4)


def test_a_smaller_one_that_rests_wakes_as_it_is() -> None:
    room = SessionRoom(10 * SLAB)
    record = read(room, 40)
    record.session.shrink()
    assert spoken(room, record, 2) == of(text(40), SMALLER, 2)
    assert record.session.rest()
    assert spoken(room, record, 3) == of(text(40), SMALLER, 5)[2:]
    assert record.session.memory_bytes == LEAST


def test_none_shrinks_in_the_middle_of_a_forward_nor_once_it_ended() -> None:
    room = SessionRoom()
    record = room.create(WHOLE, smaller=SMALLER)
    record.session.append(text(3))
    assert record.session.prefill_feed() is not None
    with pytest.raises(ValueError, match="cannot shrink"):
        record.session.shrink()
    record.session.not_run()
    room.registry.close(record.session_id)
    with pytest.raises(SessionNotFound):
        record.session.shrink()


def test_a_verifier_that_cannot_keep_it_smaller_says_so_at_once() -> None:
    """Long before memory is short."""
    room = SessionRoom()
    none = CacheSpec(CacheKind.CONTIGUOUS, capacity=0)
    for _ in range(2):
        with pytest.raises(BadParameters):
            room.create(WHOLE, smaller=none)
        with pytest.raises(BadParameters):
            room.registry.check_room(room.budget, WHOLE, smaller=none)
    assert (room.listed(), room.budget.used_bytes) == ([], 0)
