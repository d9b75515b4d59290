"""Tokens that one turn decides one behind the other, and what it tells of them."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, Decoded, DecodeTurn, PrefillTurn, run_turns
from tests.support import hash_verifier as hashing
from tests.support.ticking_clock import TickingClock

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=400, grows=True)
TEXT = [(5 * index) % 48 for index in range(70)]
SEEDED = SamplingParameters(temperature=0.5, seed=9)


def ready(verifier: hashing.HashVerifier, spec: CacheSpec = SPEC) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(TEXT)
    while PrefillTurn(session)():
        pass
    return session


def block(
    limit: int, sampling: SamplingParameters = SEEDED, stop: frozenset[int] = frozenset()
) -> Block:
    return Block((), sampling, limit, stop)


def tokens(turn: DecodeTurn) -> list[int]:
    return [token for verified in turn().steps for token in verified.step.committed]


@pytest.mark.parametrize("gather_seconds", [0.0, 1.0, 20.0, 1e6])
def test_the_tokens_are_those_of_single_turns(gather_seconds: float) -> None:
    verifier = hashing.HashVerifier()
    session = ready(verifier)
    before = session.forward_count
    expected = hashing.expected_stream(TEXT, SPEC, 30, SEEDED)
    found: list[int] = []
    turn_count = 0
    while len(found) < 30:
        turn = DecodeTurn(session, block(30 - len(found)), gather_seconds, TickingClock())
        found += tokens(turn)
        turn_count += 1
    assert found == expected
    assert session.forward_count - before == 30
    # A token takes three looks at the clock, so that seven fit 20 seconds.
    assert turn_count == {0.0: 30, 1.0: 30, 20.0: 5, 1e6: 1}[gather_seconds]


def test_each_token_has_its_own_seconds() -> None:
    turn = DecodeTurn(ready(hashing.HashVerifier()), block(3), 1e6, TickingClock())
    steps = turn().steps
    # Looks: the making; of each forward its beginning and its end; between two, whether to go on.
    assert [(step.began, step.seconds) for step in steps] == [(2.0, 1.0), (5.0, 1.0), (8.0, 1.0)]


def test_it_ends_behind_a_stop_id() -> None:
    session = ready(hashing.HashVerifier())
    expected = hashing.expected_stream(TEXT, SPEC, 30, SEEDED)
    stop = expected[7]
    turn = DecodeTurn(session, block(30, stop=frozenset({stop})), 1e6, TickingClock())
    assert tokens(turn) == expected[: expected.index(stop) + 1]
    assert session.history[-1] == stop


def test_what_was_committed_before_a_forward_failed_is_told_with_its_error() -> None:
    verifier = hashing.HashVerifier()
    verifier.pool.budget_bytes = 10 * hashing.SLAB_BYTES
    session = ready(verifier, GROWING)
    expected = hashing.expected_stream(TEXT, GROWING, 30, GREEDY)
    turn = DecodeTurn(session, block(30, GREEDY), 1e6, TickingClock())
    decoded = turn()
    assert isinstance(decoded.error, OutOfKvMemory)
    found = [token for verified in decoded.steps for token in verified.step.committed]
    assert (found, session.history[len(TEXT) :]) == (expected[: len(found)], found)
    assert 0 < len(found) < 30
    with pytest.raises(OutOfKvMemory):
        DecodeTurn(session, block(30, GREEDY), 1e6, TickingClock())()
    verifier.pool.budget_bytes = None
    rest = DecodeTurn(session, block(30 - len(found), GREEDY), 1e6, TickingClock())
    assert [*found, *tokens(rest)] == expected


def test_a_session_that_is_ended_between_two_forwards_says_how() -> None:
    session = ready(hashing.HashVerifier())
    turn = DecodeTurn(session, block(30), 1e6, TickingClock())
    (ended,) = run_turns([(turn, 1)])
    assert turn.told(ended) is None
    session.end("closed")
    (ended,) = run_turns([(turn, 1)])
    told = turn.told(ended)
    assert told is not None
    assert isinstance(told.result, Decoded)
    assert len(told.result.steps) == 1
    assert isinstance(told.result.error, SessionNotFound)
