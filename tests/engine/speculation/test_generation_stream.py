"""The stream is the verifier's own, whatever the source does, past the window."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.state import SpeculationState
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.breadth import wide

SINK, WINDOW = 2, 6
WINDOWED = CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=512)
PROMPT_LENGTH = 20 * (SINK + WINDOW)
COUNT = 80
SEEDED = SamplingParameters(temperature=0.3, top_p=0.95, top_k=20, seed=77)


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    rng = random.Random(5)
    phrase = [rng.randrange(hashing.VOCABULARY) for _ in range(12)]
    return [
        token
        for index in range(PROMPT_LENGTH)
        for token in [
            phrase[index % 12] if rng.random() < 0.8 else rng.randrange(hashing.VOCABULARY)
        ]
    ]


def make_source(name: str, text: list[int]) -> DraftSource | None:
    makers: dict[str, Callable[[], DraftSource | None]] = {
        "none": lambda: None,
        "ngram": lambda: LocalDraftSource(NgramProposer()),
        "perfect": lambda: sources.OracleSource(text, hashing.VOCABULARY),
        "adversarial": lambda: sources.AdversarialSource(text, hashing.VOCABULARY),
        "chaotic": lambda: sources.ChaoticSource(text, hashing.VOCABULARY, seed=3),
    }
    return makers[name]()


def opened(prompt: list[int], spec: CacheSpec = WINDOWED) -> Session:
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    return session


@pytest.fixture(
    scope="module",
    params=[(WINDOWED, GREEDY), (WINDOWED, SEEDED), wide((FULL, SEEDED))],
    ids=["sink_window greedy", "sink_window seeded", "contiguous seeded"],
)
def case(
    request: pytest.FixtureRequest, prompt: list[int]
) -> tuple[CacheSpec, SamplingParameters, list[int]]:
    """How a session keeps its keys, how it chooses, and its stream by the rule."""
    spec, sampling = request.param
    return spec, sampling, hashing.expected_stream(prompt, spec, COUNT, sampling)


@pytest.mark.parametrize("name", ["none", "ngram", "perfect", "adversarial", "chaotic"])
async def test_the_stream_does_not_depend_on_the_proposer(
    case: tuple[CacheSpec, SamplingParameters, list[int]], prompt: list[int], name: str
) -> None:
    spec, sampling, expected = case
    for block_size in (1, 4, 15) if name != "none" else (1,):
        source = make_source(name, [*prompt, *expected])
        asked = streams.parameters(COUNT, sampling=sampling, block_size=block_size)
        session = opened(prompt, spec)
        tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
        assert tokens == expected, block_size
        assert done.speculation.verify_forward_count <= COUNT


@pytest.mark.parametrize("name", ["ngram", "perfect", "adversarial", "chaotic"])
async def test_an_adaptive_pace_changes_nothing_but_speed(name: str, prompt: list[int]) -> None:
    expected = hashing.expected_stream(prompt, WINDOWED, COUNT, SEEDED)
    source = make_source(name, [*prompt, *expected])
    asked = streams.parameters(COUNT, sampling=SEEDED, adaptive=True)
    session = opened(prompt)
    tokens, _ = await streams.collect(session, source, asked, run=sources.yielding)
    assert tokens == expected


async def test_the_seed_matters_and_the_window_matters(prompt: list[int]) -> None:
    """Guards the tests above: their expectation is sensitive to both."""
    base = hashing.expected_stream(prompt, WINDOWED, COUNT, SEEDED)
    other = SamplingParameters(temperature=0.3, top_p=0.95, top_k=20, seed=78)
    wider = CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW + 1)
    assert hashing.expected_stream(prompt, WINDOWED, COUNT, other) != base
    assert hashing.expected_stream(prompt, wider, COUNT, SEEDED) != base
    assert hashing.expected_stream(prompt, FULL, COUNT, SEEDED) != base


@pytest.mark.parametrize("block_size", [1, 4, 15])
async def test_a_perfect_proposer_takes_one_forward_a_block(
    block_size: int, prompt: list[int]
) -> None:
    expected = hashing.expected_stream(prompt, WINDOWED, COUNT, GREEDY)
    source = sources.OracleSource([*prompt, *expected], hashing.VOCABULARY)
    session = opened(prompt)
    asked = streams.parameters(COUNT, block_size=block_size)
    state = SpeculationState()
    _, done = await streams.collect(session, source, asked, run=sources.yielding, state=state)
    speculation = done.speculation
    assert speculation.verify_forward_count == -(-COUNT // (block_size + 1))
    assert speculation.accepted_count == speculation.drafted_count == speculation.tried_count
    assert speculation.acceptance_length == pytest.approx(COUNT / speculation.verify_forward_count)
    assert speculation.ahead_miss_count == 0
    # Every block but the first comes from ahead, and is whole.
    assert speculation.ahead_hit_count == speculation.verify_forward_count - 1
    assert source.call_count == speculation.verify_forward_count
    assert sum(timing.drafted_ahead for timing in done.timeline) == speculation.ahead_hit_count
    # All forwards but the last one had the next draft beside them.
    assert state.pace.overlap.forward_beside.count == speculation.ahead_hit_count


async def test_prompt_lookup_is_accepted_where_text_repeats(prompt: list[int]) -> None:
    session = opened(prompt)
    source = LocalDraftSource(NgramProposer())
    asked = streams.parameters(COUNT)
    _, done = await streams.collect(session, source, asked, run=sources.yielding)
    assert done.speculation.acceptance_length > 1.5


async def test_alone_takes_one_forward_a_token(prompt: list[int]) -> None:
    session = opened(prompt)
    asked = streams.parameters(COUNT)
    _, done = await streams.collect(session, None, asked, run=sources.yielding)
    assert done.speculation.verify_forward_count == COUNT
    assert done.speculation.block_count == 0
    assert done.speculation.drop_reason is None
    assert session.forward_count == COUNT + -(-(PROMPT_LENGTH - 1) // 16)
