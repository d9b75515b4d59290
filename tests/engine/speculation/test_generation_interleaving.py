"""Sessions that share a verifier give what each gives alone."""

from __future__ import annotations

import asyncio
import random

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams

COUNT = 50


@pytest.mark.parametrize("threaded", [False, True], ids=["loop", "thread"])
async def test_eight_interleaved_sessions_are_eight_sessions_alone(threaded: bool) -> None:
    verifier = hashing.HashVerifier()
    runner = sources.ThreadRunner() if threaded else sources.yielding

    async def one(number) -> bool:
        rng = random.Random(number)
        spec = CacheSpec(CacheKind.SINK_WINDOW, sink=number % 3, window=5 + number)
        if number == 7:
            spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=400)
        prompt = [rng.randrange(hashing.VOCABULARY) for _ in range(100 + 9 * number)]
        sampling = SamplingParameters(temperature=0.4 * (number % 2), seed=number)
        expected = hashing.expected_stream(prompt, spec, COUNT, sampling)
        session = Session(verifier, verifier.allocate(spec))
        source = [
            None,
            LocalDraftSource(NgramProposer()),
            sources.OracleSource([*prompt, *expected], hashing.VOCABULARY),
            sources.ChaoticSource([*prompt, *expected], hashing.VOCABULARY, seed=number),
        ][number % 4]
        tokens = []
        session.append(prompt)
        for part in (1, 20, COUNT - 21):
            asked = streams.parameters(part, sampling=sampling, block_size=1 + 2 * number)
            tokens += (await streams.collect(session, source, asked, run=runner))[0]
        return tokens == expected

    assert await asyncio.gather(*[one(number) for number in range(8)]) == [True] * 8
    if threaded:
        runner.close()


async def test_sessions_take_turns_block_by_block() -> None:
    """No session runs two steps while another one waits."""
    verifier = hashing.HashVerifier()
    turns = []
    lock = asyncio.Lock()

    def runner_of(number):
        async def run(step):
            async with lock:
                turns.append(number)
                await asyncio.sleep(0)
                return step()

        return run

    async def one(number) -> None:
        spec = CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=4)
        session = Session(verifier, verifier.allocate(spec))
        session.append([number + 1] * 40)
        await streams.collect(session, None, streams.parameters(20), run=runner_of(number))

    await asyncio.gather(one(0), one(1))
    assert max(abs(turns[:end].count(0) - turns[:end].count(1)) for end in range(40)) <= 1
