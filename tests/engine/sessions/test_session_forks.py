"""Forks: the prefix's stream, shared memory, and an origin that is left alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.errors import (
    HistoryLengthMismatch,
    OutOfKvMemory,
)
from kakeya_fleet.engine.sampling.choice import GREEDY
from tests.support import hash_verifier as hashing
from tests.support.hash_sessions import (
    FULL,
    PROMPT,
    SEEDED,
    WINDOWED,
    alone,
    new_session,
    prefilled,
)


@given(length=st.integers(0, len(PROMPT) + 9), pending=st.integers(0, 30))
@example(length=len(PROMPT) + 9, pending=0)
@example(length=len(PROMPT) + 9, pending=30)
@example(length=len(PROMPT) + 8, pending=0)
@settings(deadline=None, max_examples=15)
def test_a_fork_is_the_prefix_and_leaves_its_origin_alone(length: int, pending: int) -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 9, GREEDY)
    text = [*PROMPT, *expected]
    session = new_session()
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
    session = new_session()
    session.append(PROMPT)
    alone(session, 3)
    forked = session.fork()
    assert forked.pending == 0
    with pytest.raises(HistoryLengthMismatch):
        session.fork(len(session.history) + 1)


@pytest.mark.parametrize("spec", [WINDOWED, FULL])
def test_a_fork_shares_until_it_diverges_and_gives_all_back(spec: CacheSpec) -> None:
    session = new_session(spec)
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
    session = new_session(FULL)
    session.append(PROMPT[:41])
    prefilled(session)
    forwards = hashing.of_session(session).forward_count
    forked = session.fork(length)
    assert forked.pending == 0
    assert hashing.of_session(session).forward_count == forwards
    expected = hashing.expected_stream(PROMPT[:length], FULL, 5, GREEDY)
    assert alone(forked, 5) == expected


def test_a_fork_that_does_not_fit_takes_nothing() -> None:
    session = new_session()
    session.append(PROMPT)
    prefilled(session)
    pool = session.verifier.pool
    pool.budget_bytes = used = pool.used_bytes
    for length in (None, 9):
        with pytest.raises(OutOfKvMemory):
            session.fork(length)
    assert pool.used_bytes == used
    assert alone(session, 3) == hashing.expected_stream(PROMPT, WINDOWED, 3, GREEDY)
