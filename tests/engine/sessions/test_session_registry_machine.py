"""Random lives of sessions, with turns in shared forwards, against a model of their texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.memory.eviction import freed_together
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session_record import Activity, SessionRecord
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.sessions.turn_queue import TurnQueue
from kakeya_fleet.engine.sessions.turns import (
    Block,
    PrefillTurn,
    Turn,
    Verified,
    VerifyTurn,
    run_turns,
)
from tests.support import hash_verifier as hashing
from tests.support.breadth import again
from tests.support.replacing import replace_method

SPECS = [
    CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=3),
    CacheSpec(CacheKind.SINK_WINDOW, sink=9, window=8),
    CacheSpec(CacheKind.CONTIGUOUS, capacity=120),
    CacheSpec(CacheKind.CONTIGUOUS, capacity=120, grows=True),
]
SMALLER = SPECS[1]
"""What some sessions may be packed to, so to say."""
BUDGET = 4500
TTL, MIN_IDLE = 100.0, 10.0
SEEDED = SamplingParameters(temperature=0.5, seed=4)
TOKENS = st.lists(st.integers(0, 47), min_size=1, max_size=40)
LONGEST = 100
AnyTurn = PrefillTurn | VerifyTurn
WHICH = st.integers(0, 99)
"""The which-th of the sessions that live, counted round."""


class Waiting:
    """A turn that was asked for, the hold that lasts until it ends, and what must come of it."""

    def __init__(self, turn: AnyTurn, hold: ExitStack, expected: list[int] | None) -> None:
        self.turn, self.hold, self.expected = turn, hold, expected


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.verifier = hashing.HashVerifier(context_length=120)
        self.numbers = itertools.count()
        self.registry: SessionRegistry[str] = SessionRegistry(
            clock=lambda: self.now,
            ids=lambda: str(next(self.numbers)),
            ttl_seconds=TTL,
            min_idle_seconds=MIN_IDLE,
            on_end=lambda record, _reason: self.ended.add(record.session_id),
        )
        self.budget = self.registry.add_verifier(self.verifier, BUDGET)
        self.queue = TurnQueue()
        self.texts: dict[str, list[int]] = {}
        self.specs: dict[str, CacheSpec] = {}
        self.used: dict[str, float] = {}
        self.waiting: dict[str, Waiting] = {}
        self.ended: set[str] = set()

    @initialize(row_counts=st.sampled_from([(2, 4, 8, 16, 32, 64), (16,), (64,)]))
    def rows(self, row_counts: tuple[int, ...]) -> None:
        self.verifier.use_row_counts(row_counts)

    def added(self, record: SessionRecord[str], text: list[int]) -> str:
        self.registry.open(record, record.session_id)
        self.texts[record.session_id] = list(text)
        self.specs[record.session_id] = record.session.spec
        self.used[record.session_id] = self.now
        assert record.session.history[:] == text
        return record.session_id

    def live(self) -> list[str]:
        return [name for name in self.texts if name not in self.ended]

    def one(self, which: int) -> str:
        return self.live()[which % len(self.live())]

    def idle(self, but: str | None = None) -> list[Sequence[Slab[Any]]]:
        return [
            self.registry.get(name).session.slabs
            for name in self.live()
            if name not in self.waiting and name != but and self.now - self.used[name] >= MIN_IDLE
        ]

    def refused(self, needed: int, free: int, idle: int) -> None:
        """Out of memory only where all that may give way would not do, and then nobody does."""
        assert free + idle < needed
        assert BUDGET - self.budget.used_bytes == free

    def expected(self, name: str, count: int) -> list[int]:
        spec = self.registry.get(name).session.spec
        return hashing.expected_stream(self.texts[name], spec, count, SEEDED)

    @rule(spec=st.sampled_from(SPECS), tokens=TOKENS, smaller=st.sampled_from([None, SMALLER]))
    def create(self, spec: CacheSpec, tokens: list[int], smaller: CacheSpec | None) -> None:
        free = BUDGET - self.budget.used_bytes
        room = free, freed_together(self.idle())
        needed = self.verifier.bytes_needed(spec)
        shrinks = smaller is not None and needed > free
        if shrinks:
            needed = self.verifier.bytes_needed(SMALLER)
        try:
            name = self.added(self.registry.create(self.budget, spec, smaller=smaller), [])
        except OutOfKvMemory:
            self.refused(needed, *room)
        else:
            assert self.registry.get(name).session.spec == (SMALLER if shrinks else spec)
            self.appended(name, tokens)

    @precondition(lambda self: bool(self.live()))
    @rule(which=WHICH, tokens=TOKENS)
    def append(self, which: int, tokens: list[int]) -> None:
        name = self.one(which)
        if name not in self.waiting and len(self.texts[name]) + len(tokens) <= LONGEST:
            self.appended(name, tokens)

    def appended(self, name: str, tokens: list[int]) -> None:
        session, idle = self.registry.get(name).session, self.idle(name)
        growth = self.growth(name, len(self.texts[name]) + len(tokens))
        free, own = BUDGET - self.budget.used_bytes, 0
        most = free if session.is_resting else free + freed_together(idle)
        if session.can_shrink and growth > most:
            # It gives back what it has, to be smaller.
            growth = self.verifier.bytes_needed(SMALLER)
            own = freed_together([session.slabs])
            idle.append(session.slabs)
        room = free + own, freed_together(idle) - own
        try:
            with self.registry.hold(name, Activity.APPENDING) as record:
                record.session.append(tokens)
            self.texts[name] += tokens
        except OutOfKvMemory:
            self.refused(growth, *room)
        self.used[name] = self.now

    def growth(self, name: str, length: int) -> int:
        """Bytes that a session that grows, or rested, lacks for so many positions."""
        session = self.registry.get(name).session
        if session.is_resting and not session.spec.grows:
            return self.verifier.bytes_needed(session.spec)
        slots = hashing.SEGMENT * -(-length // hashing.SEGMENT)
        lacking = slots * hashing.SLOT_BYTES - session.memory_bytes
        return max(0, lacking) if session.spec.grows else 0

    @precondition(lambda self: bool(self.live()))
    @rule(whom=st.lists(WHICH, min_size=1, max_size=8), right=st.integers(0, 4), wrong=TOKENS)
    def ask(self, whom: Iterable[int], right: int, wrong: list[int]) -> None:
        """Some ask for their generations' next turns, with `right` drafted tokens right."""
        for name in {self.one(which) for which in whom}:
            if name not in self.waiting and 0 < len(self.texts[name]) <= LONGEST:
                self.asked(name, right, wrong)

    def asked(self, name: str, right: int, wrong: list[int]) -> None:
        hold = ExitStack()
        session = hold.enter_context(self.registry.hold(name, Activity.GENERATING)).session
        turn: AnyTurn
        expected = None
        if session.pending:
            turn = PrefillTurn(session)
        else:
            expected = self.expected(name, right + 2)
            block = Block([*expected[:right], *wrong], SEEDED, right + 2)
            turn = VerifyTurn(session, block, lambda: self.now)
        self.waiting[name] = Waiting(turn, hold, expected)
        self.queue.add(turn)

    @precondition(lambda self: bool(self.live()))
    @rule(rounds=st.integers(1, 3), right=st.integers(0, 4), wrong=TOKENS)
    def all_generate(self, rounds: int, right: int, wrong: list[int]) -> None:
        for _ in range(rounds):
            self.ask(range(len(self.live())), right, wrong)
            self.run_batch(None)

    @precondition(lambda self: self.waiting)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        """A caller leaves while its turn waits."""
        name = list(self.waiting)[which % len(self.waiting)]
        waiting = self.waiting.pop(name)
        self.queue.discard(waiting.turn)
        waiting.hold.close()
        self.used[name] = self.now

    @precondition(lambda self: self.waiting)
    @rule(closing=st.none() | st.none() | st.none() | st.integers(0, 2))
    def run_batch(self, closing: int | None) -> None:
        """One forward; within it one of its sessions may be closed."""
        batch = self.queue.next_batch()
        by_turn: dict[Turn[Any], str] = {
            waiting.turn: name for name, waiting in self.waiting.items()
        }
        names = [by_turn[turn] for turn, _rows in batch]
        ended_before = set(self.ended)
        honest, closed = self.verifier.forward_batch, []

        def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
            if closing is not None and closing < len(names) and names[closing] not in self.ended:
                self.registry.close(names[closing])
                closed.append(names[closing])
            return honest(feeds)

        replace_method(self.verifier, "forward_batch", forward_batch)
        ends = run_turns(batch)
        replace_method(self.verifier, "forward_batch", honest)
        for name, ended in zip(names, ends, strict=True):
            waiting = self.waiting.pop(name)
            waiting.hold.close()
            self.used[name] = self.now
            if isinstance(ended.error, OutOfKvMemory):
                # It stands where it stood, and goes on at the latest in `teardown`.
                closed_meanwhile = name in closed
                assert name not in ended_before
                assert (
                    closed_meanwhile
                    or self.specs[name].grows
                    or self.registry.get(name).session.is_resting
                )
            elif name in self.ended:
                assert isinstance(ended.error, SessionNotFound)
            elif ended.error is not None:
                raise ended.error
            elif waiting.expected is not None:
                assert isinstance(ended.result, Verified)
                committed = list(ended.result.step.committed)
                assert committed == waiting.expected[: len(committed)]
                self.texts[name] += committed

    @precondition(lambda self: bool(self.live()))
    @rule(which=WHICH, back=st.sampled_from([0, 0, 0, 1, 2, 5, 16, 200]))
    def fork(self, which: int, back: int) -> None:
        name = self.one(which)
        length = max(0, len(self.texts[name]) - back)
        needed = self.registry.get(name).session.fork_bytes(length)
        self.used[name] = self.now
        room = BUDGET - self.budget.used_bytes, freed_together(self.idle())
        try:
            self.added(self.registry.fork(name, length), self.texts[name][:length])
        except OutOfKvMemory:
            self.refused(needed, *room)

    @precondition(lambda self: len(self.live()) > 3)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        name = self.one(which)
        assert self.registry.close(name) == len(self.texts[name])
        assert name in self.ended

    @precondition(lambda self: self.ended)
    @rule(which=WHICH)
    def ask_for_one_that_ended(self, which: int) -> None:
        name = sorted(self.ended)[which % len(self.ended)]
        for operation in (self.registry.get, self.registry.close, self.registry.fork):
            with pytest.raises(SessionNotFound):
                operation(name)

    @rule(seconds=st.sampled_from([1.0, 1.0, MIN_IDLE, MIN_IDLE, TTL / 3]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.registry.sweep(self.now)
        left = [name for name in self.live() if name not in self.waiting]
        assert [name for name in left if self.now - self.used[name] >= TTL] == []

    @invariant()
    def the_registry_holds_what_lives_within_its_budget(self) -> None:
        page, after = self.registry.page()
        assert after is None
        assert page == self.live()
        records = [self.registry.get(name) for name in page]
        pool = self.verifier.pool
        assert self.budget.used_bytes == pool.used_bytes <= BUDGET
        slabs = {slab for record in records for slab in record.session.slabs}
        assert pool.held_bytes == sum(slab.nbytes for slab in slabs)
        assert self.registry.available_bytes(self.budget) == (
            BUDGET - pool.used_bytes + freed_together(self.idle())
        )
        for record in records:
            assert record.session.history[:] == self.texts[record.session_id]
            spec = record.session.spec
            if record.session.is_resting:
                assert (record.session.memory_bytes, record.session.resident) == (0, 0)
            elif spec.grows:
                assert record.session.memory_bytes <= hashing.SLAB_BYTES + (
                    (len(self.texts[record.session_id]) + self.verifier.info.width)
                    * hashing.SLOT_BYTES
                )
            else:
                assert record.session.memory_bytes == self.verifier.bytes_needed(spec)

    def teardown(self) -> None:
        """Whatever happened, each session goes on as its text would, and nothing is left."""
        self.verifier.pool.budget_bytes = self.budget.nbytes = 1 << 20
        for waiting in self.waiting.values():
            waiting.hold.close()
        for name in self.live():
            if self.texts[name]:
                session, expected = self.registry.get(name).session, self.expected(name, 2)
                while PrefillTurn(session)():
                    pass
                assert VerifyTurn(session, Block(expected, SEEDED, 2))().step.committed == tuple(
                    expected
                )
        self.registry.close_all()
        assert self.verifier.pool.used_bytes == 0


@again(3)
def test_every_life_of_sessions_is_as_the_model_says() -> None:
    run_state_machine_as_test(
        RegistryMachine, settings=settings(deadline=None, max_examples=15, stateful_step_count=30)
    )
