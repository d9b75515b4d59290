"""Why a generation ends, and what its report says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import BadParameters, EmptyHistory, SessionNotFound
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import StopReason
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.ticking_clock import TickingClock

Result = TypeVar("Result")

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [(7 * index) % 48 for index in range(50)]


def opened(prompt: Sequence[int] = PROMPT, **options: int) -> Session:
    verifier = hashing.HashVerifier(**options)
    session = Session(verifier, verifier.allocate(SPEC))
    if prompt:
        session.append(prompt)
    return session


@pytest.fixture(params=["alone", "perfect"])
def source(request: pytest.FixtureRequest) -> sources.OracleSource | None:
    if request.param == "alone":
        return None
    text = [*PROMPT, *hashing.expected_stream(PROMPT, SPEC, 300, GREEDY)]
    return sources.OracleSource(text, hashing.VOCABULARY)


async def test_max_tokens_is_exact(source: sources.OracleSource | None) -> None:
    for count in (1, 2, 16, 17, 33):
        _, done = await streams.collect(
            opened(), source, streams.parameters(count), run=sources.yielding
        )
        assert done.stop_reason is StopReason.MAX_TOKENS
        assert done.generated_token_count == count


async def test_a_stop_id_is_the_last_token(source: sources.OracleSource | None) -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, 40, GREEDY)
    stop = next(token for token in expected[20:] if token not in expected[:20])
    end = expected.index(stop) + 1
    asked = streams.parameters(40, stop_ids=frozenset({stop}))
    tokens, done = await streams.collect(opened(), source, asked, run=sources.yielding)
    assert done.stop_reason is StopReason.STOP_TOKEN
    assert tokens == expected[:end]
    # Also when it is the last one allowed.
    asked = streams.parameters(end, stop_ids=frozenset({stop}))
    _, done = await streams.collect(opened(), source, asked, run=sources.yielding)
    assert done.stop_reason is StopReason.STOP_TOKEN


async def test_a_full_context_ends_and_a_second_generation_too(
    source: sources.OracleSource | None,
) -> None:
    session = opened(context_length=70)
    asked = streams.parameters(100)
    tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
    assert done.stop_reason is StopReason.CONTEXT_FULL
    assert tokens == hashing.expected_stream(PROMPT, SPEC, 20, GREEDY)
    tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
    assert done.stop_reason is StopReason.CONTEXT_FULL
    assert tokens == []
    assert done.speculation.acceptance_length == 0
    assert done.timings.first_token_seconds == 0


async def test_the_deadline_ends_between_blocks(source: sources.OracleSource | None) -> None:
    asked = streams.parameters(1000, deadline_seconds=120.0)
    tokens, done = await streams.collect(
        opened(), source, asked, run=sources.yielding, clock=TickingClock()
    )
    assert done.stop_reason is StopReason.DEADLINE
    assert 0 < len(tokens) < 1000
    assert tokens == hashing.expected_stream(PROMPT, SPEC, len(tokens), GREEDY)


async def test_a_deadline_within_prefill_keeps_what_was_computed() -> None:
    session = opened()
    asked = streams.parameters(10, deadline_seconds=2.5)
    tokens, done = await streams.collect(
        session, None, asked, run=sources.yielding, clock=TickingClock()
    )
    assert (tokens, done.stop_reason) == ([], StopReason.DEADLINE)
    assert 0 < session.pending < len(PROMPT) - 1
    tokens, _ = await streams.collect(session, None, streams.parameters(9), run=sources.yielding)
    assert tokens == hashing.expected_stream(PROMPT, SPEC, 9, GREEDY)


async def test_the_generations_deadline_is_no_fault_of_the_proposer() -> None:
    source = sources.SilentSource([], hashing.VOCABULARY)
    # On a busy machine it may be over before anything is asked for.
    for seconds in (0.05, 0.5, 5.0, 50.0):
        asked = streams.parameters(10, deadline_seconds=seconds, draft_deadline_seconds=1e3)
        tokens, done = await streams.collect(opened(), source, asked, run=sources.yielding)
        if source.call_count:
            break
    assert done.stop_reason is StopReason.DEADLINE
    assert len(tokens) == 1
    assert done.speculation.faults == {}
    assert source.in_flight == 0


async def test_draining_ends_between_blocks(source: sources.OracleSource | None) -> None:
    session = opened()
    asked = streams.parameters(1000)
    _, done = await streams.collect(
        session,
        source,
        asked,
        run=sources.yielding,
        should_stop=lambda: len(session.history) >= 100,
    )
    assert done.stop_reason is StopReason.DRAINING
    assert 100 <= done.history_length < 116


async def test_an_empty_history_is_refused() -> None:
    with pytest.raises(EmptyHistory):
        await streams.collect(opened(prompt=[]), None, streams.parameters(1), run=sources.yielding)


async def test_a_session_closed_meanwhile_ends_the_generation_by_name() -> None:
    session = opened()

    async def run(step: Callable[[], Result]) -> Result:
        if len(session.history) > 60:
            session.end("closed")
        return step()

    source = LocalDraftSource(NgramProposer())
    with pytest.raises(SessionNotFound, match="closed"):
        await streams.collect(session, source, streams.parameters(100), run=run)


async def test_the_report_adds_up() -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, 600, GREEDY)
    source = sources.AdversarialSource([*PROMPT, *expected], hashing.VOCABULARY)
    sampling = SamplingParameters(seed=5)
    _, done = await streams.collect(
        opened(),
        source,
        streams.parameters(600, sampling=sampling, block_size=1),
        run=sources.yielding,
        clock=TickingClock(),
    )
    speculation, timeline = done.speculation, done.timeline
    assert len(timeline) == 256 < speculation.verify_forward_count
    for earlier, later in itertools.pairwise(timeline):
        assert later.first_index == earlier.first_index + earlier.accepted_count + 1
        assert later.start_seconds > earlier.start_seconds
    assert all(timing.accepted_count <= timing.drafted_count <= 1 for timing in timeline)
    assert all(timing.verify_seconds > 0 for timing in timeline)
    assert speculation.accepted_count + speculation.verify_forward_count == 600
    assert speculation.tried_count == speculation.drafted_count == speculation.block_count
    timings = done.timings
    assert 0 < timings.prefill_seconds < timings.first_token_seconds < timings.total_seconds
    assert done.seed == 0


async def test_the_seed_is_reported_when_it_was_used() -> None:
    asked = streams.parameters(3, sampling=SamplingParameters(1.0, seed=9))
    _, done = await streams.collect(opened(), None, asked, run=sources.yielding)
    assert done.seed == 9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 2**20 + 1),
        ("block_size", -1),
        ("deadline_seconds", math.nan),
        ("deadline_seconds", -1.0),
        ("draft_deadline_seconds", math.inf),
    ],
)
def test_parameters_outside_their_range_are_named(field: str, value: float) -> None:
    given: dict[str, Any] = {"max_tokens": 1, field: value}
    with pytest.raises(BadParameters, match=field):
        GenerationParameters(**given)
