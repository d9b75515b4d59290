"""Bytes are what is held and reserved, never over budget, and promised copies are always there."""

from __future__ import annotations

import threading
from typing import Never

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
)

from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.memory.eviction import chosen_to_free, freed_together
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool
from tests.support.slab_pools import spare_bytes

SIZES = {"small": 3, "large": 10}
BUDGET = 60


class Payload:
    """What is in it, and a name that no other has."""

    def __init__(self, content: int = 0) -> None:
        self.content = content


def clean(payload: Payload) -> None:
    payload.content = 0


def copied(target: Payload, source: Payload) -> None:
    assert target.content == 0, "a copy is made into a clean payload"
    target.content = source.content


class Holder:
    """One holder of a slab: what it must read in it, and whether it may write to it."""

    def __init__(self, slab: Slab[Payload], content: int, *, writes: bool) -> None:
        self.slab, self.content, self.writes = slab, content, writes


class PoolMachine(RuleBasedStateMachine):
    holders = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.pool = SlabPool(clean, BUDGET)
        self.live: list[Holder] = []
        self.made = 0
        self.contents = iter(range(1, 1 << 30))

    @property
    def limit(self) -> int:
        assert self.pool.budget_bytes is not None
        return self.pool.budget_bytes

    def make(self) -> Payload:
        self.made += 1
        return Payload()

    def added(self, slab: Slab[Payload], content: int, *, writes: bool) -> Holder:
        self.live.append(Holder(slab, content, writes=writes))
        return self.live[-1]

    def refused(self, nbytes: int) -> MultipleResults[Holder]:
        assert self.pool.used_bytes + nbytes > self.limit
        nobody: MultipleResults[Holder] = multiple()
        return nobody

    @rule(target=holders, kind=st.sampled_from(sorted(SIZES)))
    def take(self, kind: str) -> Holder | MultipleResults[Holder]:
        before = self.pool.used_bytes
        try:
            slab = self.pool.take(kind, SIZES[kind], self.make)
        except OutOfKvMemory:
            assert self.pool.used_bytes == before
            return self.refused(SIZES[kind])
        assert slab.payload.content == 0, "another's content"
        slab.payload.content = next(self.contents)
        return self.added(slab, slab.payload.content, writes=True)

    @rule(target=holders, kinds=st.lists(st.sampled_from(sorted(SIZES)), max_size=3))
    def take_all_or_none(self, kinds: list[str]) -> MultipleResults[Holder]:
        before, made = self.pool.used_bytes, self.made
        needed = sum(SIZES[kind] for kind in kinds)
        try:
            with self.pool.claimed(needed) as claim:
                assert self.pool.used_bytes == before + needed
                slabs = [self.pool.take(kind, SIZES[kind], self.make, claim) for kind in kinds]
        except OutOfKvMemory:
            assert (self.pool.used_bytes, self.made) == (before, made)
            return self.refused(needed)
        found = []
        for slab in slabs:
            slab.payload.content = next(self.contents)
            found.append(self.added(slab, slab.payload.content, writes=True))
        return multiple(*found)

    @rule(target=holders, holder=holders, writes=st.booleans())
    def share(self, holder: Holder, writes: bool) -> Holder | MultipleResults[Holder]:
        if holder not in self.live:
            return multiple()
        try:
            slab = self.pool.share(holder.slab, will_write=writes)
        except OutOfKvMemory:
            return self.refused(holder.slab.nbytes)
        assert slab is holder.slab
        if not writes:
            # Shared to be read: neither of the two writes to it any more.
            holder.writes = False
        return self.added(slab, holder.content, writes=writes)

    @rule(holder=holders)
    def write(self, holder: Holder) -> None:
        if holder not in self.live or not holder.writes:
            return
        used = self.pool.used_bytes
        alone = holder.slab.holders == 1
        holder.slab = self.pool.writable(holder.slab, self.make, copied)
        assert holder.slab.payload.content == holder.content
        assert holder.slab.holders == 1
        assert self.pool.used_bytes == used or alone
        holder.slab.payload.content = holder.content = next(self.contents)

    @rule(holder=holders, keep=st.booleans())
    def give_back(self, holder: Holder, keep: bool) -> None:
        if holder not in self.live:
            return
        self.live.remove(holder)
        used, frees = self.pool.used_bytes, self.pool.freed_by(holder.slab)
        assert freed_together([[holder.slab]]) == frees
        if holder.slab.holders == 1:
            holder.slab.payload.content = -1
        self.pool.give_back(holder.slab, keep=keep)
        assert self.pool.used_bytes == used - frees

    @rule(data=st.data())
    def part_with_several(self, data: st.DataObject) -> None:
        """What many free together is what comes free."""
        chosen = [holder for holder in self.live if data.draw(st.booleans())]
        nbytes = data.draw(st.integers(0, BUDGET))
        holdings = [[holder.slab] for holder in chosen]
        used, frees = self.pool.used_bytes, freed_together(holdings)
        victims = chosen_to_free(holdings, nbytes)
        if victims is None:
            assert frees < nbytes
            return
        parting = [holdings[index] for index in victims]
        freed = freed_together(parting)
        assert freed >= nbytes
        for left_out in range(len(parting)):
            assert freed_together(parting[:left_out] + parting[left_out + 1 :]) < nbytes
        for index in victims:
            self.live.remove(chosen[index])
            self.pool.give_back(chosen[index].slab)
        assert self.pool.used_bytes == used - freed

    @rule(budget=st.integers(20, BUDGET))
    def change_the_budget(self, budget: int) -> None:
        """It may fall below what is used: then nothing is taken, but promised copies are."""
        self.pool.budget_bytes = budget

    @invariant()
    def bytes_are_those_of_the_slabs(self) -> None:
        slabs = {holder.slab for holder in self.live}
        held = sum(slab.nbytes for slab in slabs)
        assert self.pool.held_bytes == held
        reserved = sum(slab.copies_reserved * slab.nbytes for slab in slabs)
        assert self.pool.reserved_bytes == reserved
        assert self.pool.used_bytes == held + reserved <= BUDGET
        room = self.limit - self.pool.used_bytes
        assert self.pool.free_bytes == max(0, room)
        assert 0 <= spare_bytes(self.pool) <= max(0, room)

    @invariant()
    def no_more_is_promised_than_can_be_asked_for(self) -> None:
        for slab in {holder.slab for holder in self.live}:
            holders = [holder for holder in self.live if holder.slab is slab]
            assert slab.holders == len(holders)
            writers = sum(holder.writes for holder in holders)
            needed = writers - (writers == len(holders))
            assert needed <= slab.copies_reserved <= slab.holders - 1

    @invariant()
    def everybody_reads_what_it_wrote(self) -> None:
        assert all(holder.slab.payload.content == holder.content for holder in self.live)

    def teardown(self) -> None:
        for holder in self.live:
            self.pool.give_back(holder.slab)
        assert self.pool.used_bytes == self.pool.reserved_bytes == 0
        assert spare_bytes(self.pool) <= self.limit


TestPool = PoolMachine.TestCase
TestPool.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)


def test_a_promised_copy_survives_a_reader_that_leaves() -> None:
    pool = SlabPool(clean, 30)
    origin = pool.take("k", 10, Payload)
    pool.share(origin, will_write=True)
    pool.share(origin, will_write=False)
    pool.give_back(origin)
    origin.payload.content = 7
    own = pool.writable(origin, Payload, copied)
    assert own is not origin
    assert own.payload.content == 7


def test_a_promise_that_nobody_used_is_free_again() -> None:
    pool = SlabPool(clean, 30)
    slab = pool.take("k", 10, Payload)
    pool.share(slab, will_write=False)
    pool.share(slab, will_write=True)
    assert pool.used_bytes == 20
    assert pool.freed_by(slab, promised=True) == 10
    pool.give_back(slab, promised=True)
    assert pool.used_bytes == 10
    pool.share(slab, will_write=True)
    # Of the last one there is nothing reserved any more.
    for left in (10, 10, 0):
        pool.give_back(slab, promised=True)
        assert pool.used_bytes == left
    assert pool.reserved_bytes == 0


def test_a_slab_shared_to_be_read_is_not_written() -> None:
    pool = SlabPool(clean)
    slab = pool.share(pool.take("k", 10, Payload), will_write=False)
    with pytest.raises(ValueError, match="to be read"):
        pool.writable(slab, Payload, copied)


def test_a_slab_is_given_back_once() -> None:
    pool = SlabPool(clean)
    slab = pool.take("k", 10, Payload)
    pool.give_back(slab)
    with pytest.raises(ValueError, match="twice"):
        pool.give_back(slab)
    assert pool.used_bytes == 0


def test_memory_that_the_machine_does_not_have_is_not_counted() -> None:
    def make() -> Never:
        raise MemoryError

    pool = SlabPool(clean, 30)
    with pytest.raises(OutOfKvMemory, match="machine"):
        pool.take("k", 10, make)
    slab = pool.share(pool.take("k", 10, Payload), will_write=True)
    with pytest.raises(OutOfKvMemory, match="machine"):
        pool.writable(slab, make, copied)
    assert (pool.held_bytes, pool.reserved_bytes) == (10, 10)
    assert pool.writable(slab, Payload, copied) is not slab
    assert (pool.held_bytes, pool.reserved_bytes) == (20, 0)


def test_what_was_claimed_and_not_taken_is_free_again() -> None:
    pool = SlabPool(clean, 30)
    with pytest.raises(ValueError, match="that were claimed"), pool.claimed(25) as claim:
        kept = pool.take("k", 10, Payload, claim)
        assert (pool.held_bytes, pool.reserved_bytes, pool.free_bytes) == (10, 15, 5)
        pool.take("k", 20, Payload, claim)
    assert (pool.held_bytes, pool.reserved_bytes) == (10, 0)
    pool.give_back(kept)
    # A budget that fell below what is used refuses nobody who needs nothing.
    pool.take("k", 30, Payload)
    pool.budget_bytes = 20
    with pool.claimed(0):
        pass
    with pytest.raises(OutOfKvMemory), pool.claimed(1):
        pass


def test_spares_are_taken_again_clean_and_make_room_for_others() -> None:
    pool = SlabPool(clean, 30)
    slabs = [pool.take("k", 10, Payload) for _ in range(3)]
    for slab in slabs:
        slab.payload.content = 5
        pool.give_back(slab)
    assert spare_bytes(pool) == 30
    again = pool.take("k", 10, Payload)
    assert again in slabs
    assert again.payload.content == 0
    pool.take("other", 20, Payload)
    assert spare_bytes(pool) == 0
    with pytest.raises(OutOfKvMemory) as caught:
        pool.check_room(1)
    assert caught.value.metadata == {"needed_bytes": "1", "free_bytes": "0"}


def test_spares_that_nobody_took_since_the_last_trim_are_dropped() -> None:
    pool = SlabPool(clean, 100)
    slabs = [pool.take("k", 10, Payload) for _ in range(4)]
    assert pool.trim() == 0
    for slab in slabs:
        pool.give_back(slab)
    assert pool.trim() == 0, "they came since"
    # Two at a time are in use now and then: the other two are of no use.
    for slab in [pool.take("k", 10, Payload) for _ in range(2)]:
        pool.give_back(slab)
    assert (pool.trim(), spare_bytes(pool)) == (20, 20)
    pool.take("other", 90, Payload)
    assert (pool.trim(), spare_bytes(pool)) == (10, 0)
    assert pool.trim() == 0


def test_from_many_threads_the_count_is_right() -> None:
    pool = SlabPool(clean, 200)
    origins = [pool.take("k", 10, Payload) for _ in range(4)]

    def work() -> None:
        for turn in range(300):
            slab = origins[turn % 4]
            try:
                shared = pool.share(slab, will_write=bool(turn % 2))
            except OutOfKvMemory:
                continue
            pool.give_back(shared)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [slab.holders for slab in origins] == [1] * 4
    assert pool.used_bytes == 40


def test_who_writes_while_the_last_copy_is_taken_waits_for_it() -> None:
    """Origin and fork write to the same slab at once, each in a thread of its own."""
    pool = SlabPool(clean, 30)
    slab = pool.share(pool.take("k", 10, Payload), will_write=True)
    slab.payload.content = 7
    begun, go_on = threading.Event(), threading.Event()
    copies, owns = [], []

    def slow(target: Payload, source: Payload) -> None:
        begun.set()
        go_on.wait(60)
        copied(target, source)

    fork = threading.Thread(target=lambda: copies.append(pool.writable(slab, Payload, slow)))
    origin = threading.Thread(target=lambda: owns.append(pool.writable(slab, Payload, copied)))
    fork.start()
    assert begun.wait(60)
    origin.start()
    origin.join(0.05)
    assert not owns
    go_on.set()
    for thread in (fork, origin):
        thread.join(60)
    assert owns == [slab]
    assert copies[0] is not slab
    assert copies[0].payload.content == 7
    assert (slab.holders, slab.copies_under_way, pool.used_bytes) == (1, 0, 20)


def test_a_copy_that_fails_leaves_nobody_waiting() -> None:
    pool = SlabPool(clean, 30)
    slab = pool.share(pool.take("k", 10, Payload), will_write=True)

    def make() -> Never:
        raise MemoryError

    with pytest.raises(OutOfKvMemory):
        pool.writable(slab, make, copied)
    assert slab.copies_under_way == 0
