from __future__ import annotations

import queue
import random
import threading
from typing import Never

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Output
from kakeya_fleet.engine.errors import (
    ContextExceeded,
    EmptyAppend,
    EmptyHistory,
    EngineError,
    HistoryLengthMismatch,
    InvariantViolated,
    OutOfKvMemory,
    SessionNotFound,
    TokenOutOfVocabulary,
)
from kakeya_fleet.engine.invariants import INVARIANTS
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing

WINDOWED = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
SEEDED = SamplingParameters(temperature=0.4, seed=3)
PROMPT = [(index * index + 3 * (index % 7)) % 48 for index in range(170)]


def new_session(hashing, spec=WINDOWED, **options) -> Session:
    verifier = hashing.HashVerifier(**options)
    return Session(verifier, verifier.allocate(spec))


def prefilled(session):
    while PrefillTurn(session)():
        pass
    return session


def alone(session, count, sampling=GREEDY):
    prefilled(session)
    return [VerifyTurn(session, Block([], sampling, 1))().step.committed[0] for _ in range(count)]


@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_history_counts_not_how_it_arrived(data) -> None:
    """Random chunks, prefill begun in between, and generation in the middle."""
    session = new_session(hashing)
    expected = hashing.expected_stream(PROMPT, WINDOWED, 12, SEEDED)
    text = [*PROMPT, *expected]
    at = 0
    while at < len(PROMPT):
        end = data.draw(st.integers(at + 1, len(PROMPT)), "append up to")
        session.append(PROMPT[at:end], expected_length=at)
        at = end
        for _ in range(data.draw(st.integers(0, 3), "prefill steps")):
            PrefillTurn(session)()
    prefilled(session)
    while len(session.history) < len(text):
        at = len(session.history)
        right = data.draw(st.integers(0, 6), "right tokens")
        draft = [*text[at : at + right], data.draw(st.integers(0, 47), "a guess")]
        VerifyTurn(session, Block(draft, SEEDED, len(text) - at))()
    assert session.history[:] == text


@pytest.mark.parametrize(
    ("spec", "token_ids", "expected_length", "error"),
    [
        (WINDOWED, [], None, EmptyAppend),
        (WINDOWED, [1, 48], None, TokenOutOfVocabulary),
        (WINDOWED, [1, -1], None, TokenOutOfVocabulary),
        (WINDOWED, [2**70], None, TokenOutOfVocabulary),
        (WINDOWED, [1], 4, HistoryLengthMismatch),
        (WINDOWED, [7], 2, HistoryLengthMismatch),
        (WINDOWED, [1] * 98, None, ContextExceeded),
        (FULL, [1] * 62, None, ContextExceeded),
    ],
)
def test_a_refused_append_changes_nothing(
    spec: CacheSpec, token_ids: list[int], expected_length: int | None, error
) -> None:
    session = new_session(hashing, spec, context_length=100)
    session.append([5, 6, 7])
    with pytest.raises(error):
        session.append(token_ids, expected_length)
    assert session.history[:] == [5, 6, 7]
    assert alone(session, 3) == hashing.expected_stream([5, 6, 7], spec, 3, GREEDY)


def test_an_unknown_token_is_named_with_its_place() -> None:
    with pytest.raises(TokenOutOfVocabulary) as caught:
        new_session(hashing).append([1, 2, 60, 70])
    assert caught.value.metadata == {"token_id": "60", "index": "2", "vocabulary_size": "48"}


def test_a_prefill_step_is_one_forward_as_wide_as_the_cache_takes() -> None:
    session = new_session(hashing)
    session.append(PROMPT[:40])
    assert session.chunk == 17
    counts = []
    while session.pending:
        before = session.pending
        assert PrefillTurn(session)() == (session.pending > 0)
        counts.append(before - session.pending)
    assert counts == [17, 17, 5]
    assert session.forward_count == session.verifier.forward_count == 3
    assert not PrefillTurn(session)()
    assert session.forward_count == 3


def test_a_block_is_one_forward() -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    session = new_session(hashing)
    session.append(PROMPT)
    before = prefilled(session).forward_count
    step = VerifyTurn(session, Block(expected[:15], GREEDY, 100))().step
    assert session.forward_count == before + 1
    assert step.committed == tuple(expected)
    assert (step.first_index, step.verified_count, step.accepted_count) == (len(PROMPT), 15, 15)


def test_nothing_is_committed_behind_a_stop_id() -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    stop = expected[5]
    first = expected.index(stop)
    session = new_session(hashing)
    session.append(PROMPT)
    prefilled(session)
    step = VerifyTurn(session, Block(expected[:15], GREEDY, 100, frozenset({stop})))().step
    assert step.stopped
    assert step.committed == tuple(expected[: first + 1])
    assert step.accepted_count == first + 1
    assert alone(session, 4) == expected[first + 1 : first + 5]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_than_the_limit_is_committed(limit: int) -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    session = new_session(hashing)
    session.append(PROMPT)
    step = VerifyTurn(prefilled(session), Block(expected[:15], GREEDY, limit))().step
    assert step.committed == tuple(expected[:limit])
    assert step.verified_count == limit - 1


@pytest.mark.parametrize("spec", [WINDOWED, FULL])
def test_the_history_fills_the_context_and_no_more(spec: CacheSpec) -> None:
    session = new_session(hashing, spec, context_length=64)
    assert session.history_limit == 64
    session.append(PROMPT[:60])
    step = VerifyTurn(prefilled(session), Block([0] * 15, GREEDY, 100))().step
    assert step.verified_count == 3
    alone(session, 64 - len(session.history))
    with pytest.raises(ContextExceeded):
        VerifyTurn(session, Block([], GREEDY, 1))()
    assert len(session.history) == 64


def test_generation_needs_a_history_and_a_finished_prefill() -> None:
    session = new_session(hashing)
    with pytest.raises(EmptyHistory):
        VerifyTurn(session, Block([], GREEDY, 1))()
    session.append([1, 2])
    with pytest.raises(ValueError, match="wait for prefill"):
        VerifyTurn(session, Block([], GREEDY, 1))()
    with pytest.raises(ValueError, match="limit"):
        VerifyTurn(session, Block([], GREEDY, 0))()


@given(length=st.integers(0, len(PROMPT) + 9), pending=st.integers(0, 30))
@example(length=len(PROMPT) + 9, pending=0)
@example(length=len(PROMPT) + 9, pending=30)
@example(length=len(PROMPT) + 8, pending=0)
@settings(deadline=None, max_examples=15)
def test_a_fork_is_the_prefix_and_leaves_its_origin_alone(length: int, pending: int) -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 9, GREEDY)
    text = [*PROMPT, *expected]
    session = new_session(hashing)
    session.append(PROMPT)
    alone(session, 9)
    if pending:
        session.append([1] * pending)
    forked = session.fork(length)
    assert forked.history[:] == text[:length]
    if length:
        alone(session, 2)
        assert alone(forked, 5) == hashing.expected_stream(text[:length], WINDOWED, 5, GREEDY)
    assert session.history[: len(text)] == text


def test_a_fork_of_everything_computes_nothing_again() -> None:
    session = new_session(hashing)
    session.append(PROMPT)
    alone(session, 3)
    forked = session.fork()
    assert forked.pending == 0
    with pytest.raises(HistoryLengthMismatch):
        session.fork(len(session.history) + 1)


def test_kv_bytes_do_not_grow() -> None:
    session = new_session(hashing)
    session.append(PROMPT[:3])
    before = session.memory_bytes
    session.append(PROMPT[3:])
    alone(session, 5)
    assert session.memory_bytes == before > 0
    assert session.resident <= 8


class BrokenCache:
    """Wraps a cache and breaks one promise once `broken` is set."""

    def __init__(self, cache, promise) -> None:
        self._cache, self._promise, self.broken = cache, promise, False

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def __setattr__(self, name, value) -> None:
        own = name in ("_cache", "_promise", "broken")
        object.__setattr__(self if own else self._cache, name, value)

    @property
    def memory_bytes(self):
        return self._cache.memory_bytes + 8 * (self.broken and self._promise == "bytes")

    @property
    def resident(self):
        return self._cache.resident + 9 * (self.broken and self._promise == "resident")

    def truncate(self, length) -> None:
        if not (self.broken and self._promise == "truncate"):
            self._cache.truncate(length)


@pytest.mark.parametrize(
    ("promise", "invariant"),
    [
        ("bytes", "bounded_kv_memory"),
        ("resident", "bounded_kv_memory"),
        ("truncate", "history_cache_agreement"),
    ],
)
def test_a_broken_promise_is_named_and_ends_the_session(promise: str, invariant: str) -> None:
    verifier = hashing.HashVerifier()
    cache = BrokenCache(verifier.allocate(WINDOWED), promise)
    session = Session(verifier, cache)
    session.append(PROMPT)
    alone(session, 2)
    cache.broken = True
    with pytest.raises(InvariantViolated) as caught:
        VerifyTurn(session, Block([0, 0, 0, 0], GREEDY, 9))()
    assert caught.value.metadata["invariant"] == invariant
    assert_ended(session, invariant)


def test_tokens_that_slip_in_between_end_the_session() -> None:
    session = new_session(hashing)
    verifier = session.verifier
    session.append(PROMPT)
    prefilled(session)
    honest = verifier.forward_batch

    def forward_batch(feeds):
        session.history.extend([1])
        return honest(feeds)

    verifier.forward_batch = forward_batch
    with pytest.raises(InvariantViolated) as caught:
        VerifyTurn(session, Block([], GREEDY, 9))()
    assert caught.value.metadata["invariant"] == "contiguous_commit"
    assert_ended(session, "contiguous_commit")


def test_logits_that_mean_nothing_end_the_session() -> None:
    session = new_session(hashing)
    session.append([1])
    nothing = Output(np.full((1, 48), np.nan, np.float32))
    session.verifier.forward_batch = lambda feeds: [nothing]
    with pytest.raises(InvariantViolated):
        VerifyTurn(session, Block([], GREEDY, 9))()
    assert_ended(session, "finite_logits")


def assert_ended(session, invariant) -> None:
    assert invariant in session.end_reason
    assert session.memory_bytes == 0
    violations = {each.invariant: each.violation_count for each in session.invariants}
    assert violations == {name: int(name == invariant) for name in INVARIANTS}
    operations = [
        lambda: session.append([1]),
        PrefillTurn(session),
        lambda: VerifyTurn(session, Block([], GREEDY, 1))().step,
        session.fork,
    ]
    for operation in operations:
        with pytest.raises(SessionNotFound, match=invariant) as caught:
            operation()
        assert isinstance(caught.value, EngineError)


def test_a_prefill_forward_is_no_wider_than_the_verifier_takes() -> None:
    session = new_session(hashing, FULL)
    session.verifier.use_row_counts((16,))
    session.append([7] * 40)
    prefilled(session)
    assert list(session.verifier.batches) == [(16,), (16,), (7,)]


def test_a_forward_that_fails_leaves_the_session_as_it_was() -> None:
    session = new_session(hashing)
    session.append(PROMPT)
    expected = hashing.expected_stream(PROMPT, WINDOWED, 9, GREEDY)
    honest = session.verifier.forward_batch

    def failing(feeds) -> Never:
        honest(feeds)
        raise ZeroDivisionError

    for operation in (
        PrefillTurn(session),
        lambda: VerifyTurn(session, Block([1, 2], GREEDY, 9))().step,
    ):
        session.verifier.forward_batch = failing
        with pytest.raises(ZeroDivisionError):
            operation()
        session.verifier.forward_batch = honest
        prefilled(session)
    assert session.history[:] == PROMPT
    assert alone(session, 9) == expected


def test_choices_that_fail_leave_the_session_as_it_was() -> None:
    """What `decide` refuses is the caller's mistake, and no broken promise."""
    session = new_session(hashing)
    session.append(PROMPT)
    expected = hashing.expected_stream(PROMPT, WINDOWED, 3, GREEDY)
    with pytest.raises(AttributeError):
        prefilled(session).verified(forwarded(session, [4, 5]), None)
    assert session.history[:] == PROMPT
    assert alone(session, 3) == expected


def forwarded(session, draft):
    return session.verifier.forward_batch([session.verify_feed(draft, 9)])[0]


def test_one_forward_at_a_time() -> None:
    session = new_session(hashing)
    session.append(PROMPT[:30])
    session.prefill_feed()
    for operation in (session.prefill_feed, session.fork):
        with pytest.raises(ValueError, match="under way"):
            operation()
    session.not_run()
    prefilled(session)
    with pytest.raises(ValueError, match="no forward"):
        session.prefilled(forwarded(new_with_one_token(hashing), []))
    assert alone(session, 3) == hashing.expected_stream(PROMPT[:30], WINDOWED, 3, GREEDY)


def new_with_one_token(hashing):
    session = new_session(hashing)
    session.append([1])
    return session


@pytest.mark.parametrize("spec", [WINDOWED, FULL])
def test_a_fork_shares_until_it_diverges_and_gives_all_back(spec: CacheSpec) -> None:
    session = new_session(hashing, spec)
    pool, verifier = session.verifier.pool, session.verifier
    session.append(PROMPT[:40])
    alone(session, 3)
    before = pool.used_bytes
    needed, held = session.fork_bytes(), pool.held_bytes
    forked = session.fork()
    assert pool.used_bytes == before + needed
    assert needed <= verifier.bytes_needed(spec)
    if spec is FULL:
        # Of 42 positions five slabs of eight are read by both, the sixth is copied once
        # somebody writes, the last two are new.
        assert needed == 3 * hashing.SLAB_BYTES
        assert pool.held_bytes == held + 2 * hashing.SLAB_BYTES
    text = session.history[:]
    assert alone(forked, 4, SEEDED) == hashing.expected_stream(text, spec, 4, SEEDED)
    assert alone(session, 4) == hashing.expected_stream(text, spec, 4, GREEDY)
    assert pool.used_bytes == before + needed
    session.end("closed")
    expected = hashing.expected_stream(forked.history[:], spec, 4, GREEDY)
    assert alone(forked, 4) == expected
    forked.end("closed")
    assert pool.used_bytes == 0


@pytest.mark.parametrize("length", [1, 2, 17, 40, 41])
def test_a_shorter_fork_of_everything_kept_computes_nothing_again(length: int) -> None:
    session = new_session(hashing, FULL)
    session.append(PROMPT[:41])
    prefilled(session)
    forwards = session.verifier.forward_count
    forked = session.fork(length)
    assert forked.pending == 0
    assert session.verifier.forward_count == forwards
    expected = hashing.expected_stream(PROMPT[:length], FULL, 5, GREEDY)
    assert alone(forked, 5) == expected


def test_a_fork_that_does_not_fit_takes_nothing() -> None:
    session = new_session(hashing)
    session.append(PROMPT)
    prefilled(session)
    pool = session.verifier.pool
    pool.budget_bytes = used = pool.used_bytes
    for length in (None, 9):
        with pytest.raises(OutOfKvMemory):
            session.fork(length)
    assert pool.used_bytes == used
    assert alone(session, 3) == hashing.expected_stream(PROMPT, WINDOWED, 3, GREEDY)


def test_a_session_that_is_ended_within_a_forward_keeps_its_memory_until_then() -> None:
    """A slab given back is the next session's: a forward that still writes would corrupt it."""
    session = new_session(hashing)
    pool, verifier = session.verifier.pool, session.verifier
    session.append(PROMPT)
    prefilled(session)
    feed = session.verify_feed([1, 2, 3], 9)
    ending = threading.Thread(target=session.end, args=("closed",))
    ending.start()
    ending.join()
    assert session.memory_bytes == 0
    assert session.end_reason == "closed"
    assert pool.used_bytes == verifier.bytes_needed(WINDOWED)
    other = Session(verifier, verifier.allocate(WINDOWED))
    other.append(PROMPT[:50])
    prefilled(other)
    (output,) = verifier.forward_batch([feed])
    with pytest.raises(SessionNotFound, match="closed"):
        session.verified(output, GREEDY)
    assert session.history[:] == PROMPT
    assert pool.used_bytes == verifier.bytes_needed(WINDOWED)
    assert alone(other, 6) == hashing.expected_stream(PROMPT[:50], WINDOWED, 6, GREEDY)
    other.end("closed")
    session.end("closed again")
    assert pool.used_bytes == 0
    assert session.end_reason == "closed"


def test_an_ended_session_whose_forward_fails_gives_its_memory_back() -> None:
    session = new_session(hashing)
    session.append(PROMPT)
    session.prefill_feed()
    session.end("closed")
    session.not_run()
    assert session.verifier.pool.used_bytes == 0


def test_ended_at_any_moment_by_another_thread_no_slab_is_used_by_two() -> None:
    """Sessions end at random moments while forwards run and their slabs find new owners."""
    verifier = hashing.HashVerifier()
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=120)
    expected = hashing.expected_stream(PROMPT[:100], spec, 8, GREEDY)
    victims: queue.SimpleQueue[Session | None] = queue.SimpleQueue()

    def end_them() -> None:
        rng = random.Random(5)
        while (victim := victims.get()) is not None:
            for _ in range(rng.randrange(3000)):
                pass
            victim.end("closed")

    ending = threading.Thread(target=end_them)
    ending.start()
    ended_within = 0
    for _ in range(40):
        victim, witness = (Session(verifier, verifier.allocate(spec)) for _ in range(2))
        for session in (victim, witness):
            session.append(PROMPT[:100])
        victims.put(victim)
        try:
            while len(victim.history) < 115:
                if not PrefillTurn(victim)():
                    VerifyTurn(victim, Block([], GREEDY, 1))()
        except SessionNotFound:
            ended_within += 1
        assert alone(witness, 8) == expected
        witness.end("closed")
    victims.put(None)
    ending.join()
    assert ended_within > 0
    assert verifier.pool.used_bytes == 0


@pytest.mark.parametrize("what", ["memory_bytes", "resident", "slabs"])
def test_what_a_session_holds_may_be_asked_while_another_thread_ends_it(what: str) -> None:
    asking, asked = threading.Event(), []

    class Slow:
        """Is ended by another thread while it is being asked."""

        def __init__(self, cache) -> None:
            self._cache = cache

        def __getattr__(self, name):
            if name == what and asking.is_set():
                ending.start()
            return getattr(self._cache, name)

    verifier = hashing.HashVerifier()
    session = Session(verifier, Slow(verifier.allocate(WINDOWED)))
    ending = threading.Thread(target=session.end, args=("closed",))
    session.append([1, 2])
    prefilled(session)
    asking.set()
    asked.append(getattr(session, what))
    ending.join()
    asked.append(getattr(session, what))
    assert asked[0]
    assert not asked[1]
