"""Random lives of sessions against a model that knows only texts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from engine.cache import CacheKind, CacheSpec
from engine.errors import OutOfKvMemory, SessionNotFound
from engine.sampling import SamplingParameters
from engine.session_store import Activity, SessionStore

SPECS = [
    CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=3),
    CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=8),
    CacheSpec(CacheKind.CONTIGUOUS, capacity=120),
]
BUDGET = 7000
TTL, MIN_IDLE = 100.0, 10.0
SEEDED = SamplingParameters(temperature=0.5, seed=4)
TOKENS = st.lists(st.integers(0, 47), min_size=1, max_size=20)


class StoreMachine(RuleBasedStateMachine):
    hashing = None
    sessions = Bundle("sessions")

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.verifier = self.hashing.HashVerifier(context_length=120)
        numbers = itertools.count()
        self.store = SessionStore(
            self.verifier,
            BUDGET,
            clock=lambda: self.now,
            ids=lambda: str(next(numbers)),
            ttl_seconds=TTL,
            min_idle_seconds=MIN_IDLE,
            on_end=lambda session_id, reason: self.ended.add(session_id),
        )
        self.texts = {}
        self.used = {}
        self.ended = set()

    def added(self, record, text):
        self.texts[record.session_id] = list(text)
        self.used[record.session_id] = self.now
        assert record.session.history[:] == text
        return record.session_id

    def live(self):
        return [name for name in self.texts if name not in self.ended]

    def must_be_gone(self, name):
        with pytest.raises(SessionNotFound):
            self.store.get(name)

    def refused(self, spec):
        """Out of memory only when evicting all that may be would not do."""
        fixed = sum(
            self.store.get(name).session.memory_bytes
            for name in self.live()
            if self.now - self.used[name] < MIN_IDLE
        )
        assert fixed + self.verifier.bytes_needed(spec) > BUDGET

    @rule(target=sessions, spec=st.sampled_from(SPECS))
    def create(self, spec):
        try:
            return self.added(self.store.create(spec), [])
        except OutOfKvMemory:
            self.refused(spec)
            return multiple()

    @rule(name=sessions, tokens=TOKENS, steps=st.integers(0, 2))
    def append(self, name, tokens, steps):
        if name in self.ended:
            self.must_be_gone(name)
            return
        if len(self.texts[name]) + len(tokens) > 100:
            return
        with self.store.hold(name, Activity.APPENDING) as record:
            record.session.append(tokens)
            for _ in range(steps):
                record.session.prefill_step()
        self.texts[name] += tokens
        self.used[name] = self.now

    @rule(name=sessions, draft=TOKENS)
    def generate(self, name, draft):
        if name in self.ended or not self.texts[name] or len(self.texts[name]) > 100:
            return
        with self.store.hold(name, Activity.GENERATING) as record:
            spec = record.session.spec
            expected = self.hashing.expected_stream(self.texts[name], spec, 3, SEEDED)
            while record.session.prefill_step():
                pass
            generated = []
            while len(generated) < 3:
                guess = [*expected[len(generated) :][:1], *draft]
                step = record.session.verify(guess, SEEDED, limit=3 - len(generated))
                generated += step.committed
        assert generated == expected
        self.texts[name] += generated
        self.used[name] = self.now

    @rule(target=sessions, name=sessions, share=st.sampled_from([0.0, 0.7, 1.0, 1.0]))
    def fork(self, name, share):
        if name in self.ended:
            self.must_be_gone(name)
            return multiple()
        length = round(share * len(self.texts[name]))
        self.used[name] = self.now
        spec = self.store.get(name).session.spec
        try:
            return self.added(self.store.fork(name, length), self.texts[name][:length])
        except OutOfKvMemory:
            self.refused(spec)
            return multiple()

    @rule(name=consumes(sessions))
    def close(self, name):
        if name in self.ended:
            self.must_be_gone(name)
        else:
            assert self.store.close(name) == len(self.texts[name])
            assert name in self.ended

    @rule(seconds=st.sampled_from([1.0, MIN_IDLE, TTL / 2, TTL]))
    def pass_time(self, seconds):
        self.now += seconds
        self.store.sweep(self.now)
        idle = [name for name in self.live() if self.now - self.used[name] >= TTL]
        assert idle == []

    @invariant()
    def the_store_holds_what_lives_within_its_budget(self):
        page, after = self.store.page()
        assert after is None
        assert [record.session_id for record in page] == sorted(self.live(), key=int)
        held = sum(record.session.memory_bytes for record in page)
        assert held == self.store.kv_bytes <= BUDGET
        for record in page:
            assert record.session.history[:] == self.texts[record.session_id]


def test_every_life_of_sessions_is_as_the_model_says(hashing):
    class Machine(StoreMachine):
        """The machine with this room's verifier."""

    Machine.hashing = hashing
    run_state_machine_as_test(
        Machine, settings=settings(deadline=None, max_examples=40, stateful_step_count=30)
    )
