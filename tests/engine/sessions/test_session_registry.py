from __future__ import annotations

from typing import Never

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.errors import (
    BadParameters,
    GroupLost,
    HistoryLengthMismatch,
    InvariantViolated,
    OutOfKvMemory,
    SessionNotFound,
)
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.ended import REMEMBERED_ENDS, EndReason
from kakeya_fleet.engine.sessions.session_record import (
    Activity,
    SessionOptions,
)
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support.replacing import replace_method
from tests.support.session_room import BYTES, SPEC, SessionRoom, doing


def test_a_session_is_found_until_it_is_closed_and_then_named(room: SessionRoom) -> None:
    record = room.create(SPEC, SessionOptions("me", frozenset({3})))
    record.session.append([1, 2, 3])
    assert room.registry.get("s1") is record
    assert record.options.client_label == "me"
    assert room.registry.close("s1") == 3
    for again in (room.registry.get, room.registry.close):
        with pytest.raises(SessionNotFound, match=r"was closed.*open a new one") as caught:
            again("s1")
        assert caught.value.metadata == {"session_id": "s1"}
    with pytest.raises(SessionNotFound, match="not known"):
        room.registry.get("nonsense")
    assert room.ended == [("s1", EndReason.CLOSED)]


def test_a_session_that_was_being_made_when_its_group_was_lost_is_none(room: SessionRoom) -> None:
    """The verifier's thread makes it while the event loop's ends all others."""
    allocate = room.verifier.allocate

    def late(spec: CacheSpec, evicted: EvictedStore | None = None) -> KvCache:
        room.registry.end_verifier(room.budget, EndReason.GROUP)
        return allocate(spec, evicted)

    replace_method(room.verifier, "allocate", late)
    with pytest.raises(GroupLost, match="open a new one"):
        room.create(SPEC, request_id="r")
    assert len(room.registry) == room.budget.used_bytes == 0


def test_closing_gives_the_memory_back_at_once(room: SessionRoom) -> None:
    record = room.create(SPEC)
    pool = room.verifier.pool
    assert room.budget.used_bytes == pool.used_bytes == BYTES
    slabs = record.session.slabs
    room.registry.close("s1")
    assert room.budget.used_bytes == pool.used_bytes == 0
    assert record.session.slabs == ()
    assert all(slab.holders == 0 for slab in slabs)
    # The next session takes the same memory, so nothing grows.
    assert set(room.create(SPEC).session.slabs) == set(slabs)


def test_holds_nest_and_the_last_one_counts(room: SessionRoom) -> None:
    room.create(SPEC)
    with room.registry.hold("s1", Activity.GENERATING) as record:
        with room.registry.hold("s1", Activity.APPENDING):
            assert doing(record) is Activity.APPENDING
        assert doing(record) is Activity.GENERATING
        room.now += 1e6
        assert room.registry.sweep(room.now) == 0


def test_what_never_fits_gets_no_retry_hint(room: SessionRoom) -> None:
    with pytest.raises(OutOfKvMemory, match="never fits") as caught:
        room.create(CacheSpec(CacheKind.CONTIGUOUS, capacity=4096))
    assert "retry_after_seconds" not in caught.value.metadata


def test_a_fork_that_never_fits_beside_its_origin_gets_no_retry_hint() -> None:
    tight = SessionRoom(budget=2 * BYTES - 1)
    session = tight.create(SPEC).session
    session.append([1] * 40)
    while PrefillTurn(session)():
        pass
    with pytest.raises(OutOfKvMemory, match=r"never fits.* beside") as caught:
        tight.registry.fork("s1", 3)
    assert "retry_after_seconds" not in caught.value.metadata
    roomy = SessionRoom(budget=2 * BYTES)
    roomy.create(SPEC)
    roomy.create(SPEC)
    with pytest.raises(OutOfKvMemory, match="retry in") as caught:
        roomy.registry.fork("s1")
    assert "retry_after_seconds" in caught.value.metadata


def test_a_failed_allocation_gives_its_room_back(room: SessionRoom) -> None:
    def allocate(spec: CacheSpec, evicted: EvictedStore | None = None) -> Never:
        raise MemoryError

    honest = room.verifier.allocate
    replace_method(room.verifier, "allocate", allocate)
    for _ in range(5):
        with pytest.raises(MemoryError):
            room.create(SPEC)
    replace_method(room.verifier, "allocate", honest)
    room.create(SPEC)
    assert room.budget.used_bytes == BYTES


def test_a_retried_creation_opens_no_second_session(room: SessionRoom) -> None:
    first = room.create(SPEC, request_id="r")
    assert room.create(SPEC, request_id="r") is first
    assert room.create(SPEC, request_id="other") is not first
    with pytest.raises(BadParameters, match="another kind"):
        room.create(SPEC, SessionOptions("else"), request_id="r")
    room.now += 599.0
    assert room.create(SPEC, request_id="r") is first
    room.now += 1.0
    assert room.create(SPEC, request_id="r") is not first


def test_a_request_whose_session_ended_opens_a_new_one(room: SessionRoom) -> None:
    room.create(SPEC, request_id="r")
    room.registry.close("s1")
    second = room.create(SPEC, request_id="r")
    assert second.session_id == "s2"
    assert room.create(SPEC, request_id="r") is second


@pytest.mark.parametrize("field", ["request_id", "client_label"])
def test_overlong_names_are_refused(room: SessionRoom, field: str) -> None:
    with pytest.raises(BadParameters) as caught:
        if field == "request_id":
            room.create(SPEC, request_id="x" * 129)
        else:
            room.create(SPEC, SessionOptions("x" * 129))
    assert caught.value.metadata == {"field": field}


def test_a_fork_takes_room_too_and_never_evicts_its_origin(room: SessionRoom) -> None:
    origin = room.create(SPEC, SessionOptions("me"))
    origin.session.append([1, 2, 3, 4])
    for _ in range(2):
        room.now += 100.0
        forked = room.registry.fork("s1", 3)
        assert forked.session.history[:] == [1, 2, 3]
        assert forked.options == origin.options
    room.now += 100.0
    # The origin is the oldest, and held while it is forked.
    room.registry.fork("s1")
    assert room.awake() == ["s1", "s3", "s4"]
    with pytest.raises(HistoryLengthMismatch):
        room.registry.fork("s1", 5)
    assert room.budget.used_bytes == 3 * BYTES


def test_pages_are_in_the_order_of_opening_and_survive_a_close() -> None:
    room = SessionRoom(budget=20 * BYTES)
    records = [room.create(SPEC) for _ in range(8)]
    # The first that was made is opened last, and one is not opened at all.
    for record in (*records[1:7], records[0]):
        room.registry.open(record, record.session_id)
    page, after = room.registry.page(size=3)
    assert page == ["s2", "s3", "s4"]
    room.registry.close("s4")
    room.registry.close("s6")
    assert after is not None
    page, after = room.registry.page(after, 3)
    assert page == ["s5", "s7", "s1"]
    assert after is None
    assert room.registry.page(after=7) == ([], None)
    assert room.registry.page()[0] == ["s2", "s3", "s5", "s7", "s1"]
    assert room.registry.opened("s1") == "s1"
    for unknown in ("s4", "s8"):
        with pytest.raises(SessionNotFound):
            room.registry.opened(unknown)


def test_one_that_ended_before_it_was_opened_is_not_listed(room: SessionRoom) -> None:
    record = room.create(SPEC)
    room.registry.close("s1")
    with pytest.raises(SessionNotFound, match="closed"):
        room.registry.open(record, "s1")
    assert room.registry.page() == ([], None)


def test_verifiers_have_budgets_and_request_ids_of_their_own(room: SessionRoom) -> None:
    """What gives way to one is its own, although others are idle for longer."""
    _verifier, other = room.another(BYTES)
    far = room.registry.create(other, SPEC, request_id="r")
    room.now += 100.0
    near = [room.create(SPEC, request_id="r"), room.create(SPEC), room.create(SPEC)]
    room.now += 100.0
    room.create(SPEC)
    assert (room.rested, room.ended) == ([near[0].session_id], [])
    assert room.registry.created(other, "r") is far
    assert room.registry.created(room.budget, "r") is near[0]
    assert room.registry.available_bytes(other) == BYTES
    assert room.registry.end_verifier(room.budget, EndReason.GROUP) == 4
    assert room.listed() == [far.session_id]
    with pytest.raises(GroupLost):
        room.create(SPEC)
    with pytest.raises(GroupLost):
        room.registry.get(near[2].session_id)


def test_so_many_ends_are_remembered_and_no_more(room: SessionRoom) -> None:
    for _ in range(REMEMBERED_ENDS + 1):
        room.registry.close(room.create(SPEC).session_id)
    with pytest.raises(SessionNotFound, match="not known"):
        room.registry.get("s1")
    with pytest.raises(SessionNotFound, match="was closed"):
        room.registry.get("s2")


def test_a_broken_session_leaves_the_registry_and_is_counted(room: SessionRoom) -> None:
    record = room.create(SPEC)
    record.session.append([1, 2, 3])
    record.session._computed = 1
    with pytest.raises(InvariantViolated), room.registry.hold("s1", Activity.APPENDING):
        PrefillTurn(record.session)()
    assert room.count(EndReason.INVARIANT) == 1
    assert room.ended == [("s1", EndReason.INVARIANT)]
    with pytest.raises(SessionNotFound, match="history_cache_agreement"):
        room.registry.get("s1")


def test_a_session_closed_while_held_stays_closed(room: SessionRoom) -> None:
    with room.registry.hold("s1" if room.create(SPEC) else "", Activity.GENERATING) as record:
        record.session.append([1])
        room.registry.close("s1")
        with pytest.raises(SessionNotFound, match="closed"):
            VerifyTurn(record.session, Block([], GREEDY, 1))()
    assert room.ended == [("s1", EndReason.CLOSED)]
    assert len(room.registry) == 0


def test_what_a_session_does_may_be_asked_while_its_last_holder_goes(room: SessionRoom) -> None:
    class Leaving(list[Activity]):
        """Counts the holder that another thread takes away just then."""

        def __len__(self) -> int:
            return 1

    record = room.create(SPEC)
    record.activities = Leaving()
    assert record.activity is Activity.IDLE


def test_a_session_closed_within_a_forward_is_counted_until_it_ends(room: SessionRoom) -> None:
    record = room.create(SPEC)
    record.session.append([1, 2, 3])
    feed = record.session.prefill_feed()
    assert feed is not None
    room.registry.close("s1")
    assert room.budget.used_bytes == BYTES
    (output,) = room.verifier.forward_batch([feed])
    with pytest.raises(SessionNotFound):
        record.session.prefilled(output)
    assert room.budget.used_bytes == 0
