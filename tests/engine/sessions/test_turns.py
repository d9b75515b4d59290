"""Several sessions in one forward: each as alone, also when another of them fails."""

from __future__ import annotations

import itertools

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Output
from kakeya_fleet.engine.errors import (
    ContextExceeded,
    InvariantViolated,
    OutOfKvMemory,
    SessionNotFound,
)
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn, run_turns
from tests.support import hash_verifier as hashing

SPECS = [
    CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6),
    CacheSpec(CacheKind.CONTIGUOUS, capacity=200),
    CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=3),
]
SEEDED = SamplingParameters(temperature=0.5, seed=9)


def prompt(number):
    return [(7 * number + index * index) % 48 for index in range(90 + number)]


def opened(verifier, number) -> Session:
    session = Session(verifier, verifier.allocate(SPECS[number % 3]))
    session.append(prompt(number))
    return session


def verifying(
    session, draft=(), limit: int = 100, sampling=SEEDED, clock=lambda: 0.0, **options
) -> VerifyTurn:
    return VerifyTurn(session, Block(draft, sampling, limit, **options), clock)


def results(ends):
    for ended in ends:
        if ended.error is not None:
            raise ended.error
    return [ended.result for ended in ends]


def prefilled(*sessions):
    for session in sessions:
        while PrefillTurn(session)():
            pass
    return sessions


def goes_on(hashing, session, number, count: int = 4) -> bool:
    expected = hashing.expected_stream(prompt(number), session.spec, count, SEEDED)
    prefilled(session)
    at = len(session.history) - len(prompt(number))
    while at < count:
        at += len(verifying(session, limit=count - at)().step.committed)
    return session.history[len(prompt(number)) :] == expected[:at]


@pytest.mark.parametrize("right", [0, 1, 3])
def test_sessions_in_one_forward_are_those_sessions_alone(right: int) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(6)]
    expected = [
        hashing.expected_stream(prompt(number), session.spec, 20, SEEDED)
        for number, session in enumerate(sessions)
    ]
    while any(session.pending for session in sessions):
        waiting = [session for session in sessions if session.pending]
        forwards = verifier.forward_count
        rows = 64 // len(waiting)
        results(run_turns([(PrefillTurn(session), rows) for session in waiting]))
        assert verifier.forward_count == forwards + 1
    streams = [[] for _ in sessions]
    while any(len(stream) < 20 for stream in streams):
        turns, at = [], []
        for number, stream in enumerate(streams):
            if len(stream) < 20:
                draft = [*expected[number][len(stream) :][:right], 0, 1]
                turns.append(verifying(sessions[number], draft, 20 - len(stream)))
                at.append(number)
        ran = results(run_turns([(turn, turn.rows) for turn in turns]))
        for number, verified in zip(at, ran, strict=True):
            streams[number] += verified.step.committed
    assert streams == expected


def test_a_turn_uses_no_more_rows_than_it_is_given() -> None:
    session = opened(hashing.HashVerifier(), 0)
    turn = PrefillTurn(session)
    assert (turn.rows, turn.least_rows) == (17, 1)
    assert results(run_turns([(turn, 5)])) == [True]
    assert list(session.verifier.batches) == [(5,)]
    prefilled(session)
    turn = verifying(session, [1, 2, 3], limit=3)
    assert turn.rows == turn.least_rows == 3
    turn()
    assert session.verifier.batches[-1] == (3,)


def test_the_seconds_are_those_of_the_forward_and_the_choice() -> None:
    session = opened(hashing.HashVerifier(), 0)
    prefilled(session)
    ticks = itertools.count()
    turn = verifying(session, clock=lambda: float(next(ticks)))
    assert turn().seconds == 1.0


def broken(session) -> None:
    """The next forward of this session finds a broken promise."""
    session._memory._allocated_bytes += 1


FAULTS = {
    "ended before": (lambda session: session.end("closed"), SessionNotFound),
    "promise": (broken, InvariantViolated),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_feed_that_cannot_be_made_is_its_own_sessions_matter(fault: str) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(3)]
    prefilled(*sessions)
    turns = [verifying(session, limit=1) for session in sessions]
    break_it, error = FAULTS[fault]
    break_it(sessions[1])
    forwards = verifier.forward_count
    ends = run_turns([(turn, turn.rows) for turn in turns])
    assert isinstance(ends[1].error, error)
    assert verifier.forward_count == forwards + 1
    for number in (0, 2):
        assert ends[number].error is None
        assert goes_on(hashing, sessions[number], number)


@pytest.mark.parametrize("kind", ["prefill", "verify"])
def test_a_session_ended_within_the_forward_loses_only_itself(kind: str) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(3)]
    if kind == "verify":
        prefilled(*sessions)
    honest = verifier.forward_batch

    def forward_batch(feeds):
        sessions[1].end("closed")
        return honest(feeds)

    verifier.forward_batch = forward_batch
    make = PrefillTurn if kind == "prefill" else verifying
    ends = run_turns([(make(session), 16) for session in sessions])
    verifier.forward_batch = honest
    assert isinstance(ends[1].error, SessionNotFound)
    assert sessions[1].history[:] == prompt(1)
    for number in (0, 2):
        assert ends[number].error is None
        assert goes_on(hashing, sessions[number], number)
        sessions[number].end("closed")
    assert verifier.pool.used_bytes == 0


@pytest.mark.parametrize("after", [False, True], ids=["before it writes", "after it wrote"])
def test_when_a_forward_fails_only_the_guilty_one_gets_the_error(after: bool) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(4)]
    prefilled(*sessions)
    honest = verifier.forward_batch

    def forward_batch(feeds):
        outputs = honest(feeds) if after else []
        if any(feed.token_ids[0] == prompt(2)[-1] for feed in feeds):
            raise ZeroDivisionError
        return outputs or honest(feeds)

    verifier.forward_batch = forward_batch
    drafts = [[1, 2], [3], [4, 5, 6], []]
    turns = [verifying(s, d, 1) for s, d in zip(sessions, drafts, strict=True)]
    ends = run_turns([(turn, turn.rows) for turn in turns])
    verifier.forward_batch = honest
    assert [ended.error is None for ended in ends] == [True, True, False, True]
    assert isinstance(ends[2].error, ZeroDivisionError)
    assert sessions[2].history[:] == prompt(2)
    for number, session in enumerate(sessions):
        assert goes_on(hashing, session, number)


def test_an_outcome_that_fails_is_its_own_sessions_matter() -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(3)]
    prefilled(*sessions)
    turns = [verifying(sessions[0]), verifying(sessions[1], sampling=None), verifying(sessions[2])]
    ends = run_turns([(turn, turn.rows) for turn in turns])
    assert [ended.error is None for ended in ends] == [True, False, True]
    for number, session in enumerate(sessions):
        assert goes_on(hashing, session, number)


def test_missing_outputs_are_an_error_of_the_forward_and_not_of_a_session() -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, number) for number in range(2)]
    prefilled(*sessions)
    honest = verifier.forward_batch
    verifier.forward_batch = lambda feeds: honest(feeds)[: 1 if len(feeds) > 1 else None]
    turns = [verifying(session, limit=1) for session in sessions]
    assert all(ended.error is None for ended in run_turns([(t, 1) for t in turns]))
    for number, session in enumerate(sessions):
        assert goes_on(hashing, session, number)


def test_called_alone_a_turn_raises_what_it_meets() -> None:
    verifier = hashing.HashVerifier(context_length=90)
    session = Session(verifier, verifier.allocate(SPECS[0]))
    session.append(prompt(0))
    prefilled(session)
    with pytest.raises(ContextExceeded):
        verifying(session, sampling=GREEDY)()


def test_a_forward_that_finds_no_memory_leaves_its_session_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verifier = hashing.HashVerifier()
    session = opened(verifier, 0)
    prefilled(session)

    def refused(feeds: object) -> list[Output]:
        raise MemoryError("8 bytes")

    with monkeypatch.context() as full:
        full.setattr(verifier, "forward_batch", refused)
        (ended,) = run_turns([(turn := verifying(session, limit=1), turn.rows)])
    assert isinstance(ended.error, OutOfKvMemory)
    assert "8 bytes" in str(ended.error)
    assert goes_on(hashing, session, 0)
