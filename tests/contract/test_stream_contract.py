"""The streams of every verifier past the window: one history, one stream."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends import BACKENDS, load_verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(320)]
"""Twenty times the sink and window of the suite's `sink_window`."""
COUNT = 48
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)
SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED}
# In full on the verifier made for tests. No back end knows how tokens are chosen, and all
# caches of each are held to its bits elsewhere: it meets both ways, and a ring that wraps.
CASES = [
    ("hash", "contiguous", "seeded"),
    ("hash", "sink_window", "greedy"),
    ("hash", "sink_window", "seeded"),
    ("hash", "one_over", "seeded"),
    ("hash", "no_sink", "greedy"),
    ("torch", "sink_window", "seeded"),
    ("torch", "contiguous", "greedy"),
    ("mlx", "sink_window", "greedy"),
    ("mlx", "one_over", "seeded"),
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def any_verifier(case, random_checkpoint):
    """A back end with a small random model, or the verifier made for tests."""
    name = case[0]
    if name == "hash":
        return hashing.HashVerifier()
    return load_verifier(ModelFolder(random_checkpoint(), "random"), backend=name)


@pytest.fixture(scope="module")
def spec(case, specs):
    return specs[case[1]]


@pytest.fixture(scope="module")
def sampling(case):
    return SAMPLINGS[case[2]]


def test_every_back_end_is_among_the_cases() -> None:
    assert {name for name, _, _ in CASES} == {*BACKENDS, "hash"}


def opened(verifier, spec, prompt=PROMPT):
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    return session


@pytest.fixture(scope="module")
def alone(any_verifier, spec, sampling):
    """The stream without any proposer, one token a forward from the first of the prompt on."""
    session = Session(any_verifier, any_verifier.allocate(spec))
    for token in PROMPT:
        session.append([token])
        PrefillTurn(session)()
    tokens = [VerifyTurn(session, Block([], sampling, 1))().step.committed[0] for _ in range(COUNT)]
    assert len(set(tokens)) > 1
    return tokens


@pytest.fixture(scope="module")
def read(any_verifier, spec):
    """A session that has read the prompt at once, to be forked."""
    session = opened(any_verifier, spec)
    while PrefillTurn(session)():
        pass
    return session


# Sources that are often wrong take about as many forwards as there are tokens.
@pytest.mark.parametrize(
    ("name", "block_sizes"),
    [("ngram", (4,)), ("perfect", (1, 4, 15)), ("adversarial", (4, 15)), ("chaotic", (1, 15))],
)
async def test_no_proposer_and_no_block_size_changes_the_stream(
    name, block_sizes, any_verifier, read, sampling, alone
) -> None:
    text, vocabulary = [*PROMPT, *alone], any_verifier.info.vocabulary_size
    for block_size in block_sizes:
        source = {
            "ngram": lambda: LocalDraftSource(NgramProposer()),
            "perfect": lambda: sources.OracleSource(text, vocabulary),
            "adversarial": lambda: sources.AdversarialSource(text, vocabulary),
            "chaotic": lambda size=block_size: sources.ChaoticSource(text, vocabulary, seed=size),
        }[name]()
        asked = streams.parameters(COUNT, sampling=sampling, block_size=block_size)
        session = read.fork()
        tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
        assert tokens == alone, block_size
        if name == "perfect":
            assert done.speculation.verify_forward_count == -(-COUNT // (block_size + 1))
        session.end("compared")


@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_history_counts_not_how_it_arrived(any_verifier, spec, sampling, alone, data) -> None:
    session = Session(any_verifier, any_verifier.allocate(spec))
    while len(session.history) < len(PROMPT):
        at = len(session.history)
        session.append(PROMPT[at : at + data.draw(st.integers(1, 60))])
        for _ in range(data.draw(st.integers(0, 4))):
            PrefillTurn(session)()
    while PrefillTurn(session)():
        pass
    tokens = []
    while len(tokens) < COUNT:
        draft = [*alone[len(tokens) :][: data.draw(st.integers(0, 8))], 0, 1]
        step = VerifyTurn(session, Block(draft, sampling, COUNT - len(tokens)))().step
        tokens += step.committed
    assert tokens == alone


def test_at_once_is_token_by_token(any_verifier, spec, sampling, alone) -> None:
    session = opened(any_verifier, spec)
    while PrefillTurn(session)():
        pass
    assert VerifyTurn(session, Block(alone[:15], sampling, 16))().step.committed == tuple(
        alone[:16]
    )


async def test_eight_interleaved_sessions_are_eight_sessions_alone(
    any_verifier, spec, sampling
) -> None:
    prompts = [random.Random(seed).choices(range(48), k=40 + 7 * seed) for seed in range(8)]
    runner = sources.ThreadRunner()

    async def one(prompt):
        source = LocalDraftSource(NgramProposer())
        asked = streams.parameters(16, sampling=sampling, block_size=4)
        session = opened(any_verifier, spec, prompt)
        return (await streams.collect(session, source, asked, run=runner))[0]

    apart = [await one(prompt) for prompt in prompts]
    assert await asyncio.gather(*map(one, prompts)) == apart
    runner.close()


@pytest.mark.parametrize("ticks", [1, 30, 55, 70])
async def test_a_cancelled_generation_continues_as_if_it_had_not_been(
    ticks, any_verifier, spec, sampling, alone
) -> None:
    session = opened(any_verifier, spec)
    source = sources.OracleSource([*PROMPT, *alone], any_verifier.info.vocabulary_size)
    asked = streams.parameters(COUNT, sampling=sampling, block_size=3)

    async def consume() -> None:
        async for _ in generate(
            session,
            Roster.of_one(source),
            asked,
            SessionDriver(sources.yielding, time.perf_counter),
        ):
            pass

    task = asyncio.ensure_future(consume())
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    done_before = len(session.history) - len(PROMPT)
    assert done_before < COUNT
    rest = streams.parameters(COUNT - done_before, sampling=sampling)
    await streams.collect(session, source, rest, run=sources.yielding)
    assert session.history[len(PROMPT) :] == alone


def test_a_fork_goes_on_as_its_origin_would(any_verifier, spec, sampling, alone) -> None:
    session = opened(any_verifier, spec)
    while PrefillTurn(session)():
        pass
    VerifyTurn(session, Block(alone[:9], sampling, 10))()
    whole, shorter = session.fork(), session.fork(len(PROMPT) + 4)
    while PrefillTurn(shorter)():
        pass
    assert whole.pending == 0
    assert VerifyTurn(shorter, Block(alone[4:10], sampling, 9))().step.committed == tuple(
        alone[4:11]
    )
    assert VerifyTurn(whole, Block(alone[10:20], sampling, 16))().step.committed == tuple(
        alone[10:21]
    )
    assert VerifyTurn(session, Block(alone[10:20], sampling, 16))().step.committed == tuple(
        alone[10:21]
    )
