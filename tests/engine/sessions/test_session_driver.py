"""Tokens into a session, as the node appends them: whole or not at all, computed in turns."""

from __future__ import annotations

import asyncio

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import HistoryLengthMismatch, OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.proposers.local_source import run_inline
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Block, VerifyTurn
from tests.support import hash_verifier as hashing

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
CHUNK = 17
PROMPT = [(7 * index) % 48 for index in range(50)]


class Turns:
    """Runs turns, one second each; `before` is called with the number of each first."""

    def __init__(self, before=lambda _: None) -> None:
        self.now = 0.0
        self.count = 0
        self.told = []
        self._before = before
        self.driver = SessionDriver(self.run, lambda: self.now, self.on_prefill)

    async def run(self, turn):
        self._before(self.count)
        await asyncio.sleep(0)
        self.count += 1
        self.now += 1.0
        return turn()

    def on_prefill(self, token_count, seconds) -> None:
        self.told.append((token_count, seconds))


@pytest.fixture
def session() -> Session:
    verifier = hashing.HashVerifier()
    return Session(verifier, verifier.allocate(SPEC))


def next_token(session):
    return VerifyTurn(session, Block([], GREEDY, 1))().step.committed


async def test_an_append_is_computed_a_chunk_a_turn_and_told(session: Session) -> None:
    turns = Turns()
    appended = await turns.driver.append(session, PROMPT, 0, run_step=run_inline)
    assert (appended.history_length, appended.prefill_seconds) == (50, 3.0)
    assert turns.told == [(CHUNK, 1.0), (CHUNK, 1.0), (49 - 2 * CHUNK, 1.0)]
    assert session.pending == 0
    assert next_token(session) == tuple(hashing.expected_stream(PROMPT, SPEC, 1, GREEDY))


async def test_what_is_refused_appends_and_computes_nothing(session: Session) -> None:
    turns = Turns()
    with pytest.raises(HistoryLengthMismatch):
        await turns.driver.append(session, PROMPT, 1, run_step=run_inline)
    assert (len(session.history), turns.count) == (0, 0)


async def test_a_caller_that_leaves_keeps_all_tokens_and_the_next_operation_computes_the_rest(
    session: Session,
) -> None:
    began = asyncio.Event()
    turns = Turns(lambda number: began.set() if number == 1 else None)
    task = asyncio.create_task(turns.driver.append(session, PROMPT, run_step=run_inline))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(session.history), session.pending) == (50, 49 - CHUNK)
    assert turns.told == [(CHUNK, 1.0)]
    assert await Turns().driver.prefill(session) is None
    assert next_token(session) == tuple(hashing.expected_stream(PROMPT, SPEC, 1, GREEDY))


async def test_a_reason_to_stop_ends_it_between_turns_and_none_is_asked_for_at_the_end(
    session: Session,
) -> None:
    turns = Turns()
    session.append(PROMPT)
    stop = lambda: "enough" if turns.count == 2 else None  # noqa: E731
    assert await turns.driver.prefill(session, stop) == "enough"
    assert session.pending == 49 - 2 * CHUNK
    assert await turns.driver.prefill(session) is None
    assert await turns.driver.prefill(session, lambda: "too late") is None


async def test_memory_that_another_took_meanwhile_fails_the_turn_and_keeps_what_was_computed() -> (
    None
):
    verifier = hashing.HashVerifier()
    growing = CacheSpec(CacheKind.CONTIGUOUS, capacity=400, grows=True)
    session = Session(verifier, verifier.allocate(growing))

    def taken(number) -> None:
        verifier.pool.budget_bytes = verifier.pool.used_bytes if number == 1 else 1 << 20

    tokens = PROMPT * 4
    with pytest.raises(OutOfKvMemory):
        await Turns(taken).driver.append(session, tokens, run_step=run_inline)
    assert 0 < session.pending < len(tokens) - 1
    assert len(session.history) == len(tokens)
    verifier.pool.budget_bytes = 1 << 20
    await Turns().driver.prefill(session)
    assert next_token(session) == tuple(hashing.expected_stream(tokens, growing, 1, GREEDY))


async def test_a_session_that_ends_meanwhile_says_so(session: Session) -> None:
    turns = Turns(lambda number: session.end("closed") if number == 1 else None)
    with pytest.raises(SessionNotFound, match="closed"):
        await turns.driver.append(session, PROMPT, run_step=run_inline)
    assert turns.count == 2
