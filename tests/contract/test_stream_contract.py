"""The streams of every verifier past the window: one history, one stream."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.breadth import all_wide_but, wide
from tests.support.guides import third_of
from tests.support.small_verifiers import COMPILED, DEVICES, VERIFIERS, small_verifier, tried_on

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(150)]
"""Past every ring of the suite: the longest has 128 slots."""
ONE_BY_ONE = (
    *([token] for token in PROMPT[:18]),
    PROMPT[18:48],
    *([token] for token in PROMPT[48:52]),
    PROMPT[52:62],
    *([token] for token in PROMPT[62:68]),
    PROMPT[68:126],
    *([token] for token in PROMPT[126:130]),
    PROMPT[130:],
)
"""Past both sinks and windows, and where the rings of 64 and of 128 slots go round."""
COUNT = 40
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)
HELD = replace(SEEDED, frequency_penalty=0.5, presence_penalty=0.25)
"""With a grammar: `answer_of`."""
SAMPLINGS = {"greedy": GREEDY, "seeded": SEEDED, "held": HELD}
# In full on the verifier made for tests: `test_generation_stream`. No back end knows how
# tokens are chosen, and all caches of each are held to its bits elsewhere: it meets both
# ways, and a ring that wraps.
CASES = [
    ("hash", "sink_window", "seeded"),
    ("hash", "one_over", "held"),
    ("torch", "sink_window", "seeded"),
    ("torch", "contiguous", "greedy"),
    ("torch", "one_over", "held"),
    ("compiled", "one_over", "greedy"),
    ("compiled", "contiguous", "seeded"),
    ("mlx", "sink_window", "greedy"),
    ("mlx", "one_over", "seeded"),
    ("mlx", "sink_window", "held"),
]
TRIED = [case for case in CASES if case[0] in ("hash", "compiled")] + [
    ("torch", "one_over", "held"),
    ("mlx", "sink_window", "held"),
]
"""By `make test`; the others are wide."""
ON_DEVICES = [
    pytest.param(case, marks=pytest.mark.device)
    for device in DEVICES
    for case in ((device, "sink_window", "seeded"), (device, "contiguous", "greedy"))
]


@pytest.fixture(scope="module", params=[*all_wide_but(TRIED, CASES), *ON_DEVICES], ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    back_end, spec, sampling = request.param
    return back_end, spec, sampling


@pytest.fixture(scope="module")
def any_verifier(case: tuple[str, str, str], random_checkpoint: Callable[..., Path]) -> Verifier:
    """A back end with a small random model, or the verifier made for tests."""
    name = case[0]
    if name == "hash":
        return hashing.HashVerifier()
    return small_verifier(name, random_checkpoint)


@pytest.fixture(scope="module")
def spec(case: tuple[str, str, str], specs: dict[str, CacheSpec]) -> CacheSpec:
    return specs[case[1]]


@pytest.fixture(scope="module")
def sampling(case: tuple[str, str, str]) -> SamplingParameters:
    return SAMPLINGS[case[2]]


def test_every_back_end_is_among_the_cases() -> None:
    assert {name for name, _, _ in CASES} == {*VERIFIERS, "hash"}


def answer_of(
    verifier: Verifier, sampling: SamplingParameters, said: Sequence[int] = ()
) -> Answer | None:
    """What a generation has said whose choices depend on it; None for others."""
    if sampling is not HELD:
        return None
    size = verifier.info.vocabulary_size
    guide = third_of(size)
    guide.take(said)
    return Answer(size, said, guide)


def asked_for(
    verifier: Verifier,
    sampling: SamplingParameters,
    count: int,
    said: Sequence[int] = (),
    block_size: int = 0,
) -> GenerationParameters:
    """A generation that goes on behind `said`, its own."""
    guide = None
    if sampling is HELD:
        guide = third_of(verifier.info.vocabulary_size)
        guide.take(said)
    asked = streams.parameters(count, sampling=sampling, block_size=block_size)
    return replace(asked, guide=guide, said_count=len(said))


def opened(verifier: Verifier, spec: CacheSpec, prompt: list[int] = PROMPT) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    return session


@pytest.fixture(scope="module")
def alone(any_verifier: Verifier, spec: CacheSpec, sampling: SamplingParameters) -> list[int]:
    """The stream without any proposer, one token a forward."""
    session = Session(any_verifier, any_verifier.allocate(spec))
    for piece in ONE_BY_ONE:
        session.append(piece)
        while PrefillTurn(session)():
            pass
    block = Block([], sampling, 1, answer=answer_of(any_verifier, sampling))
    tokens = [VerifyTurn(session, block)().step.committed[0] for _ in range(COUNT)]
    assert len(set(tokens)) > 1
    held = third_of(any_verifier.info.vocabulary_size)
    assert (held.fitting(tokens) == COUNT) == (sampling is HELD)
    return tokens


@pytest.fixture(scope="module")
def read(any_verifier: Verifier, spec: CacheSpec) -> Session:
    """A session that has read the prompt at once, to be forked."""
    session = opened(any_verifier, spec)
    while PrefillTurn(session)():
        pass
    return session


async def test_no_proposer_and_no_block_size_changes_the_stream(
    any_verifier: Verifier, read: Session, sampling: SamplingParameters, alone: list[int]
) -> None:
    text, vocabulary = [*PROMPT, *alone], any_verifier.info.vocabulary_size
    perfect = sources.OracleSource(text, vocabulary)
    for source, block_size in (
        (LocalDraftSource(NgramProposer()), 4),
        (perfect, 1),
        (perfect, 15),
        (sources.AdversarialSource(text, vocabulary), 4),
        (sources.ChaoticSource(text, vocabulary, seed=15), 15),
    ):
        asked = asked_for(any_verifier, sampling, COUNT, block_size=block_size)
        session = read.fork()
        tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
        assert tokens == alone, (source, block_size)
        if source is perfect:
            assert done.speculation.verify_forward_count == -(-COUNT // (block_size + 1))
        session.end("compared")


@pytest.mark.parametrize("seed", [1, wide(2)])
def test_history_counts_not_how_it_arrived(
    any_verifier: Verifier,
    spec: CacheSpec,
    sampling: SamplingParameters,
    alone: list[int],
    seed: int,
) -> None:
    rng = random.Random(seed)
    session = Session(any_verifier, any_verifier.allocate(spec))
    while len(session.history) < len(PROMPT):
        at = len(session.history)
        session.append(PROMPT[at : at + rng.randint(1, 60)])
        for _ in range(rng.randint(0, 4)):
            PrefillTurn(session)()
    while PrefillTurn(session)():
        pass
    tokens: list[int] = []
    answer = answer_of(any_verifier, sampling)
    while len(tokens) < COUNT:
        draft = [*alone[len(tokens) :][: rng.randint(0, 8)], 0, 1]
        block = Block(draft, sampling, COUNT - len(tokens), answer=answer)
        tokens += VerifyTurn(session, block)().step.committed
    assert tokens == alone


def test_a_session_that_rested_goes_on_as_if_it_had_not(
    any_verifier: Verifier, spec: CacheSpec, sampling: SamplingParameters, alone: list[int]
) -> None:
    """Before its first token, between chunks of its prompt, in mid-stream, and twice in a row."""
    pool = any_verifier.pool
    before = pool.used_bytes
    session = Session(any_verifier, any_verifier.allocate(spec))
    assert session.rest()
    assert (session.memory_bytes, session.resident, pool.used_bytes) == (0, 0, before)
    session.append(PROMPT[:90])
    PrefillTurn(session)()
    assert session.rest()
    session.append(PROMPT[90:])
    tokens: list[int] = []
    answer = answer_of(any_verifier, sampling)
    while len(tokens) < COUNT:
        while PrefillTurn(session)():
            pass
        draft = [*alone[len(tokens) :][:6], 0, 1]
        block = Block(draft, sampling, COUNT - len(tokens), answer=answer)
        tokens += VerifyTurn(session, block)().step.committed
        computed = session.computed_count
        if len(tokens) in range(10, 25):
            assert (session.rest(), session.rest()) == (True, False)
            assert (pool.used_bytes, session.pending) == (before, computed)
            fork = session.fork(len(PROMPT) + 3)
            while PrefillTurn(fork)():
                pass
            block = Block([], sampling, 1, answer=answer_of(any_verifier, sampling, alone[:3]))
            assert VerifyTurn(fork, block)().step.committed[0] == alone[3]
            fork.end("compared")
    assert tokens == alone
    assert session.recomputed_count >= len(PROMPT) + 10
    session.end("compared")
    assert pool.used_bytes == before


# With the other back ends sessions decode beside each other in `test_weights_contract`.
@pytest.mark.parametrize("verifier", tried_on(COMPILED), indirect=True)
async def test_interleaved_sessions_are_each_as_alone(
    verifier: Verifier, specs: dict[str, CacheSpec]
) -> None:
    """Every second one held to a grammar.

    Eight of them on a verifier made for tests: `test_generation_interleaving`.
    """
    prompts = [random.Random(seed).choices(range(48), k=40 + 9 * seed) for seed in range(4)]
    runner = sources.ThreadRunner()

    async def one(prompt: list[int]) -> list[int]:
        source = LocalDraftSource(NgramProposer())
        sampling = HELD if len(prompt) % 2 else SEEDED
        asked = asked_for(verifier, sampling, 16, block_size=4)
        session = opened(verifier, specs["sink_window"], prompt)
        return (await streams.collect(session, source, asked, run=runner))[0]

    apart = [await one(prompt) for prompt in prompts]
    assert await asyncio.gather(*map(one, prompts)) == apart
    runner.close()


@pytest.mark.parametrize("ticks", [1, 30, wide(55)])
async def test_a_cancelled_generation_continues_as_if_it_had_not_been(
    any_verifier: Verifier,
    spec: CacheSpec,
    sampling: SamplingParameters,
    alone: list[int],
    ticks: int,
) -> None:
    session = opened(any_verifier, spec)
    source = sources.OracleSource([*PROMPT, *alone], any_verifier.info.vocabulary_size)
    asked = asked_for(any_verifier, sampling, COUNT, block_size=3)

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
    rest = asked_for(any_verifier, sampling, COUNT - done_before, alone[:done_before])
    await streams.collect(session, source, rest, run=sources.yielding)
    assert session.history[len(PROMPT) :] == alone


def test_a_fork_goes_on_as_its_origin_would(
    any_verifier: Verifier, read: Session, sampling: SamplingParameters, alone: list[int]
) -> None:
    session = read.fork()

    def block(said: int, draft: list[int], limit: int) -> Block:
        answer = answer_of(any_verifier, sampling, alone[:said])
        return Block(draft, sampling, limit, answer=answer)

    VerifyTurn(session, block(0, alone[:9], 10))()
    whole, shorter = session.fork(), session.fork(len(PROMPT) + 4)
    while PrefillTurn(shorter)():
        pass
    assert whole.pending == 0
    assert VerifyTurn(shorter, block(4, alone[4:10], 9))().step.committed == tuple(alone[4:11])
    for each in (whole, session):
        behind = block(10, alone[10:20], 16)
        assert VerifyTurn(each, behind)().step.committed == tuple(alone[10:21])
