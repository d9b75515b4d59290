"""Leaving a generation stops the work within a block and loses nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import TurnRunner
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import Committed
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.breadth import again
from tests.support.replacing import replace_method

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [(11 * index * index) % 48 for index in range(60)]
SEEDED = SamplingParameters(temperature=0.4, seed=21)
COUNT = 60


@pytest.fixture(scope="module")
def expected() -> list[int]:
    return hashing.expected_stream(PROMPT, SPEC, COUNT, SEEDED)


def opened() -> Session:
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(PROMPT)
    return session


async def cancelled_after(
    ticks: int,
    session: Session,
    source: DraftSource | None,
    asked: GenerationParameters,
    run: TurnRunner,
) -> list[int]:
    """Cancels a running generation after some turns of the loop; what it yielded."""
    received: list[int] = []

    async def consume() -> None:
        async for item in generate(
            session,
            Roster.of_one(source) if source is not None else None,
            asked,
            SessionDriver(run, time.perf_counter),
        ):
            received.extend(getattr(item, "token_ids", ()))

    task = asyncio.ensure_future(consume())
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    return received


@given(
    ticks=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    name=st.sampled_from(["none", "ngram", "perfect", "adversarial"]),
)
@settings(deadline=None, max_examples=9)
@again(3)
def test_cancelled_at_any_moment_and_continued_the_stream_is_the_same(
    ticks: list[int], name: str, expected: list[int]
) -> None:
    text = [*PROMPT, *expected]
    drafting: dict[str, DraftSource | None] = {
        "none": None,
        "ngram": LocalDraftSource(NgramProposer()),
        "perfect": sources.OracleSource(text, hashing.VOCABULARY),
        "adversarial": sources.AdversarialSource(text, hashing.VOCABULARY),
    }
    source = drafting[name]

    async def scenario() -> None:
        session = opened()
        for count in ticks:
            remaining = len(text) - len(session.history)
            if remaining == 0:
                break
            asked = streams.parameters(remaining, sampling=SEEDED, block_size=4)
            at = len(session.history)
            received = await cancelled_after(count, session, source, asked, sources.yielding)
            assert len(asyncio.all_tasks()) == 1
            committed = session.history[at:]
            # At most the block that was being verified was not delivered.
            assert received == committed[: len(received)]
            assert len(committed) - len(received) <= 5
        if len(session.history) < len(text):
            asked = streams.parameters(len(text) - len(session.history), sampling=SEEDED)
            await streams.collect(session, source, asked, run=sources.yielding)
        assert session.history[:] == text

    asyncio.run(scenario())


async def test_leaving_the_iterator_stops_within_one_block(expected: list[int]) -> None:
    session = opened()
    source = sources.OracleSource([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(COUNT, sampling=SEEDED, block_size=4)
    stream = generate(
        session, Roster.of_one(source), asked, SessionDriver(sources.yielding, time.perf_counter)
    )
    first = await anext(stream)
    assert isinstance(first, Committed)
    forwards = hashing.of_session(session).forward_count
    await stream.aclose()
    assert source.in_flight == 0
    assert len(asyncio.all_tasks()) == 1
    assert hashing.of_session(session).forward_count <= forwards + 1
    assert session.history[len(PROMPT) :][:5] == list(first.token_ids)
    tokens, _ = await streams.collect(
        session, source, streams.parameters(COUNT - 5, sampling=SEEDED), run=sources.yielding
    )
    assert [*first.token_ids, *tokens] == expected


async def test_cancelled_while_it_waits_for_a_draft_none_is_left_in_flight() -> None:
    session = opened()
    source = sources.SilentSource([], hashing.VOCABULARY)
    received = await cancelled_after(
        30, session, source, streams.parameters(COUNT), sources.yielding
    )
    assert source.call_count == 1
    assert source.in_flight == 0
    assert len(asyncio.all_tasks()) == 1
    assert received == []
    assert session.history[:] == PROMPT


async def test_a_cancelled_thread_step_is_awaited_before_the_session_is_left(
    expected: list[int],
) -> None:
    """The step blocks in its thread; the generation must not end before it does."""
    session = opened()
    runner = sources.ThreadRunner()
    entered, release = threading.Event(), threading.Event()
    honest = session.verifier.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        if feeds[0].want_logits:
            entered.set()
            assert release.wait(60)
        return honest(feeds)

    replace_method(session.verifier, "forward_batch", forward_batch)
    asked = streams.parameters(COUNT, sampling=SEEDED)
    source = sources.SilentSource([], hashing.VOCABULARY)
    asked_ahead = streams.parameters(COUNT, sampling=SEEDED, draft_deadline_seconds=0.0)

    async def consume() -> None:
        async for _ in generate(
            session, Roster.of_one(source), asked_ahead, SessionDriver(runner, time.perf_counter)
        ):
            pass

    task = asyncio.ensure_future(consume())
    assert await asyncio.to_thread(entered.wait, 60)
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.history[len(PROMPT) :] == expected[:1]
    rest = streams.parameters(COUNT - 1, sampling=asked.sampling)
    tokens, _ = await streams.collect(session, None, rest, run=runner)
    assert tokens == expected[1:]
    runner.close()
