"""Tokens that one turn decides one behind the other, and what it tells of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.decoding import Decoded, DecodeTurn
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, Verified, run_turns
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


class Reading:
    """Takes what it is told at once, or never."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.told: list[list[int]] = []

    @property
    def is_waiting(self) -> bool:
        return self.takes or not self.told

    def tell(self, steps: Sequence[Verified]) -> None:
        self.told.append([token for each in steps for token in each.step.committed])


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("gather_seconds", [0.0, 1.0, 20.0, 1e6])
def test_the_tokens_are_those_of_single_turns(
    gather_seconds: float, at_once: bool, takes: bool
) -> None:
    verifier = hashing.HashVerifier()
    session = ready(verifier)
    before = session.forward_count
    expected = hashing.expected_stream(TEXT, SPEC, 30, SEEDED)
    found: list[int] = []
    told: list[list[int]] = []
    turn_count = 0
    while len(found) < 30:
        reader = Reading(takes=takes)
        turn = DecodeTurn(
            session,
            block(30 - len(found)),
            TickingClock(),
            reader=reader,
            gather_seconds=lambda: gather_seconds,
            at_once=at_once and not found,
        )
        result = tokens(turn)
        told += [*reader.told, result]
        found += [token for each in reader.told for token in each] + result
        turn_count += 1
    assert found == expected
    assert session.forward_count - before == 30
    sizes = [len(each) for each in told]
    if not gather_seconds:
        assert sizes == [1] * 30
        return
    assert sizes[0] == 1 or not at_once or gather_seconds > 30
    # It goes on while they are taken; a token takes three looks at the clock, so seven 20 seconds.
    assert (turn_count == 1) is (takes or gather_seconds > 30)
    assert set(sizes[1:-1]) <= {1.0: {1}, 20.0: {7, 1}, 1e6: {29}}[gather_seconds]


def test_it_ends_with_the_next_forward_where_it_is_told_to() -> None:
    session = ready(hashing.HashVerifier())
    turn = DecodeTurn(session, block(30), TickingClock())
    (ended,) = run_turns([(turn, 1)])
    assert turn.told(ended) is None
    turn.stop()
    (ended,) = run_turns([(turn, 1)])
    assert turn.told(ended) is ended
    assert len(session.history) == len(TEXT) + 2


def test_it_ends_when_its_time_is_over() -> None:
    session = ready(hashing.HashVerifier())
    clock = TickingClock()
    assert len(tokens(DecodeTurn(session, block(30), clock, until=20.0))) == 7
    assert clock.now - 20.0 <= 3.0


def test_each_token_has_its_own_seconds() -> None:
    turn = DecodeTurn(ready(hashing.HashVerifier()), block(3), TickingClock())
    steps = turn().steps
    # Looks: the making; of each forward its beginning and its end; between two, whether to go on.
    assert [(step.began, step.seconds) for step in steps] == [(2.0, 1.0), (5.0, 1.0), (8.0, 1.0)]


def test_it_ends_behind_a_stop_id() -> None:
    session = ready(hashing.HashVerifier())
    expected = hashing.expected_stream(TEXT, SPEC, 30, SEEDED)
    stop = expected[7]
    turn = DecodeTurn(session, block(30, stop=frozenset({stop})), TickingClock())
    assert tokens(turn) == expected[: expected.index(stop) + 1]
    assert session.history[-1] == stop


def test_what_was_committed_before_a_forward_failed_is_told_with_its_error() -> None:
    verifier = hashing.HashVerifier()
    verifier.pool.budget_bytes = 10 * hashing.SLAB_BYTES
    session = ready(verifier, GROWING)
    expected = hashing.expected_stream(TEXT, GROWING, 30, GREEDY)
    turn = DecodeTurn(session, block(30, GREEDY), TickingClock())
    decoded = turn()
    assert isinstance(decoded.error, OutOfKvMemory)
    found = [token for verified in decoded.steps for token in verified.step.committed]
    assert (found, session.history[len(TEXT) :]) == (expected[: len(found)], found)
    assert 0 < len(found) < 30
    with pytest.raises(OutOfKvMemory):
        DecodeTurn(session, block(30, GREEDY), TickingClock())()
    verifier.pool.budget_bytes = None
    rest = DecodeTurn(session, block(30 - len(found), GREEDY), TickingClock())
    assert [*found, *tokens(rest)] == expected


def test_a_session_that_is_ended_between_two_forwards_says_how() -> None:
    session = ready(hashing.HashVerifier())
    turn = DecodeTurn(session, block(30), TickingClock())
    (ended,) = run_turns([(turn, 1)])
    assert turn.told(ended) is None
    session.end("closed")
    (ended,) = run_turns([(turn, 1)])
    told = turn.told(ended)
    assert told is not None
    assert isinstance(told.result, Decoded)
    assert len(told.result.steps) == 1
    assert isinstance(told.result.error, SessionNotFound)
