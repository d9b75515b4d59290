"""Tokens that are told while the turn that decides them goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, SessionNotFound
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.decoding import MOST_LATE_SECONDS, Decoded, Decoding
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support.gated_verifier import GatedVerifier, StandingClock
from tests.support.patience import PATIENCE_SECONDS

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=400, grows=True)
TEXT = [(5 * index) % 48 for index in range(70)]
SEEDED = SamplingParameters(temperature=0.5, seed=9)


class Bench:
    """A session whose forwards and time are the test's, and its thread."""

    def __init__(self) -> None:
        self.verifier = GatedVerifier()
        self.clock = StandingClock()
        self.run = sources.ThreadRunner()

    def session(self, spec: CacheSpec = SPEC) -> Session:
        session = Session(self.verifier, self.verifier.allocate(spec))
        session.append(TEXT)
        while PrefillTurn(session)():
            pass
        self.verifier.shut()
        return session

    def decoding(
        self,
        session: Session,
        limit: int = 30,
        gather_seconds: float = 1.0,
        *,
        at_once: bool = False,
        until: float = math.inf,
    ) -> Decoding:
        return Decoding(
            self.run,
            session,
            Block((), SEEDED, limit),
            self.clock,
            lambda: gather_seconds,
            at_once=at_once,
            until=until,
        )


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    bench.verifier.let(1 << 16)
    bench.run.close()


def tokens(decoded: Decoded) -> list[int]:
    return [token for each in decoded.steps for token in each.step.committed]


async def test_the_first_token_is_told_before_the_second_is_decided(bench: Bench) -> None:
    session = bench.session()
    decoding = bench.decoding(session, at_once=True)
    bench.verifier.let(1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        first = tokens(await decoding.take())
    assert len(session.history) == len(TEXT) + 1
    assert not decoding.is_over
    bench.verifier.let(29)
    rest = tokens(await decoding.take())
    assert decoding.is_over
    assert (len(first), len(rest)) == (1, 29)
    assert first + rest == hashing.expected_stream(TEXT, SPEC, 30, SEEDED)


async def test_tokens_are_told_when_they_were_gathered_and_it_goes_on(bench: Bench) -> None:
    session = bench.session()
    decoding = bench.decoding(session)
    found: list[int] = []
    for round_index in range(1, 4):
        bench.verifier.let(4)
        await bench.verifier.come(5 * round_index)
        bench.clock.now += 1.0
        bench.verifier.let(1)
        came = tokens(await decoding.take())
        assert len(came) == 5
        assert not decoding.is_over
        found += came
    decoding.stop()
    bench.verifier.let(1)
    found += tokens(await decoding.take())
    assert decoding.is_over
    assert found == hashing.expected_stream(TEXT, SPEC, 16, SEEDED)
    assert session.history[len(TEXT) :] == found


async def test_a_reader_that_stops_leaves_little_behind_and_loses_nothing(bench: Bench) -> None:
    decoding = bench.decoding(bench.session())
    bench.clock.now = 1.0
    bench.verifier.let(1)
    await bench.verifier.come(2)
    # One more is due, and later what a busy loop is given.
    bench.clock.now = 2.0
    bench.verifier.let(1)
    await bench.verifier.come(3)
    bench.clock.now = 2.0 + MOST_LATE_SECONDS
    bench.verifier.let(9)
    # The thread has nothing else to do.
    await bench.run(int)
    found: list[int] = []
    while not decoding.is_over:
        found += tokens(await decoding.take())
    assert len(found) == 3
    assert found == hashing.expected_stream(TEXT, SPEC, 3, SEEDED)


async def test_it_ends_when_its_time_is_over(bench: Bench) -> None:
    decoding = bench.decoding(bench.session(), gather_seconds=9.0, until=5.0)
    bench.clock.now = 5.0
    bench.verifier.let(9)
    assert len(tokens(await decoding.take())) == 1
    assert decoding.is_over


@pytest.mark.parametrize("gather_seconds", [1.0, 9.0])
async def test_what_came_is_told_before_what_failed(bench: Bench, gather_seconds: float) -> None:
    bench.verifier.pool.budget_bytes = 10 * hashing.SLAB_BYTES
    session = bench.session(GROWING)
    decoding = bench.decoding(session, 200, gather_seconds, at_once=True)
    bench.verifier.let(1)
    found = tokens(await decoding.take())
    bench.clock.now = 1.0
    bench.verifier.let(1 << 16)
    error: Exception | None = None
    while error is None:
        try:
            decoded = await decoding.take()
        except OutOfKvMemory as raised:
            error = raised
        else:
            found += tokens(decoded)
            error = decoded.error
    assert isinstance(error, OutOfKvMemory)
    assert decoding.is_over
    assert session.history[len(TEXT) :] == found
    assert found == hashing.expected_stream(TEXT, GROWING, len(found), SEEDED)


async def test_what_was_told_is_taken_before_the_error_is_raised(bench: Bench) -> None:
    session = bench.session()
    decoding = bench.decoding(session, at_once=True)
    bench.verifier.let(1)
    await bench.verifier.come(2)
    session.end("closed")
    bench.verifier.let(1)
    await bench.run(int)
    await asyncio.sleep(0)
    found: list[int] = []
    with pytest.raises(SessionNotFound):
        while True:
            found += tokens(await decoding.take())
    assert decoding.is_over
    assert found == hashing.expected_stream(TEXT, SPEC, len(found), SEEDED)
    assert found


async def test_closing_waits_for_its_forward_however_often_that_is_cancelled(bench: Bench) -> None:
    session = bench.session()
    decoding = bench.decoding(session, at_once=True)
    bench.verifier.let(1)
    await decoding.take()
    closing = asyncio.create_task(decoding.close())
    for _ in range(3):
        await asyncio.sleep(0)
        closing.cancel()
    await asyncio.sleep(0)
    assert not closing.done()
    bench.verifier.let(1 << 16)
    with pytest.raises(asyncio.CancelledError):
        await closing
    left = len(session.history)
    await bench.run(int)
    assert len(session.history) == left
    await decoding.close()


async def test_who_leaves_the_waiting_finds_all_of_it_later(bench: Bench) -> None:
    decoding = bench.decoding(bench.session(), 5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await decoding.take()
    bench.verifier.let(5)
    assert tokens(await decoding.take()) == hashing.expected_stream(TEXT, SPEC, 5, SEEDED)
    assert decoding.is_over
