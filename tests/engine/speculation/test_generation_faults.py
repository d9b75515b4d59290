"""A proposer's fault costs speed, is counted by kind, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Never, TypeVar

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import Done, DropReason
from kakeya_fleet.engine.speculation.pace import Pace
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.steps import MeasuredSteps
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.replacing import replace_method

Result = TypeVar("Result")

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [(7 * index) % 48 for index in range(20)]
COUNT = 40


def opened() -> Session:
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(PROMPT)
    return session


@pytest.fixture(scope="module")
def expected() -> list[int]:
    return hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)


class StandingClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        (DraftFaultKind.UNREACHABLE, 1),
        (DraftFaultKind.DEADLINE, 1),
        (DraftFaultKind.WRONG_LENGTH, 3),
        (DraftFaultKind.OUT_OF_VOCABULARY, 3),
        (DraftFaultKind.STALE, 3),
        (DraftFaultKind.FEATURES, 3),
    ],
)
async def test_each_kind_is_counted_and_opens_the_breaker(
    kind: DraftFaultKind, faults: int, expected: list[int]
) -> None:
    source = sources.FaultySource(expected, hashing.VOCABULARY, kind)
    state = SpeculationState()
    # Only drafts that never come wait for it.
    deadline = 0.02 if kind is DraftFaultKind.DEADLINE else 10.0
    asked = streams.parameters(COUNT, draft_deadline_seconds=deadline)
    clock = StandingClock()
    tokens, done = await streams.collect(
        opened(), source, asked, run=sources.yielding, state=state, clock=clock
    )
    assert tokens == expected
    assert done.speculation.faults == {DropReason(kind.value): faults}
    assert done.speculation.drop_reason == DropReason(kind.value)
    assert source.call_count == faults
    assert not state.breaker.closed
    assert len(asyncio.all_tasks()) == 1


async def test_an_open_breaker_outlives_the_generation_and_closes_on_success(
    expected: list[int],
) -> None:
    clock, state, session = StandingClock(), SpeculationState(), opened()
    dead = sources.FaultySource([], hashing.VOCABULARY, DraftFaultKind.UNREACHABLE)
    good = sources.OracleSource([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(10)
    await streams.collect(session, dead, asked, run=sources.yielding, state=state, clock=clock)
    _, done = await streams.collect(
        session, good, asked, run=sources.yielding, state=state, clock=clock
    )
    assert good.call_count == 0
    assert done.speculation.drop_reason == DropReason.UNREACHABLE
    assert done.speculation.faults == {}
    clock.now += 1.0
    _, done = await streams.collect(
        session, good, asked, run=sources.yielding, state=state, clock=clock
    )
    assert done.speculation.drop_reason is None
    assert done.speculation.accepted_count == 9
    assert session.history[:] == [*PROMPT, *expected[:30]]


async def test_a_frozen_proposer_costs_one_deadline_not_one_a_block(expected: list[int]) -> None:
    source = sources.SilentSource([], hashing.VOCABULARY)
    asked = streams.parameters(COUNT, draft_deadline_seconds=0.05)
    tokens, done = await streams.collect(opened(), source, asked, run=sources.yielding)
    assert tokens == expected
    assert done.speculation.faults == {DropReason.DEADLINE: 1}
    assert [timing.wait_seconds >= 0.049 for timing in done.timeline].index(True) == 0
    assert sum(timing.wait_seconds >= 0.049 for timing in done.timeline) == 1
    assert source.in_flight == 0


async def test_a_proposer_that_freezes_behind_an_ahead_draft(expected: list[int]) -> None:
    """The first draft is good, the one made ahead never comes."""

    class Freezing(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            if self.call_count > 1:
                await asyncio.Event().wait()
            return Draft(tuple(right))

    source = Freezing([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(COUNT, draft_deadline_seconds=0.5)
    tokens, done = await streams.collect(opened(), source, asked, run=sources.yielding)
    assert tokens == expected
    assert source.call_count == 2
    assert done.speculation.faults == {DropReason.DEADLINE: 1}
    assert done.speculation.drop_reason == DropReason.DEADLINE


@pytest.mark.parametrize(("deadline", "most"), [(0.3, 2), (100.0, 4)])
async def test_no_more_is_asked_for_than_is_drafted_by_the_deadline(
    deadline: float, most: int, expected: list[int]
) -> None:
    asked: list[int] = []

    class Noting(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            asked.append(block_size)
            return Draft(tuple(right))

    source = Noting([*PROMPT, *expected], hashing.VOCABULARY)
    # A model that takes a tenth of a second for a token.
    steps = MeasuredSteps.of([(1, 0.1), (15, 1.5)], padded=False)
    state = SpeculationState(pace=Pace(draft_steps=steps))
    tokens, _ = await streams.collect(
        opened(),
        source,
        streams.parameters(COUNT, draft_deadline_seconds=deadline, adaptive=True),
        run=sources.yielding,
        state=state,
    )
    assert tokens == expected
    assert asked[0] == most


async def test_a_source_that_cannot_draft_ahead_is_never_asked_to(expected: list[int]) -> None:
    asked: list[tuple[int, ...]] = []

    class Conditioned(sources.OracleSource):
        drafts_ahead = False

        async def draft(
            self,
            history: Sequence[int],
            assumed: Sequence[int],
            block_size: int,
            drawing: Drawing | None = None,
        ) -> Draft:
            asked.append(tuple(assumed))
            return await super().draft(history, assumed, block_size, drawing)

    source = Conditioned([*PROMPT, *expected], hashing.VOCABULARY)
    tokens, done = await streams.collect(
        opened(), source, streams.parameters(COUNT, block_size=4), run=sources.yielding
    )
    assert tokens == expected
    assert len(asked) == done.speculation.block_count == COUNT // 5
    assert set(asked) == {()}
    assert done.speculation.ahead_hit_count == done.speculation.ahead_miss_count == 0


async def test_a_source_closed_under_its_draft_is_unreachable(expected: list[int]) -> None:
    class Closing(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Never:
            raise asyncio.CancelledError

    source = Closing([], hashing.VOCABULARY)
    tokens, done = await streams.collect(
        opened(), source, streams.parameters(COUNT), run=sources.yielding
    )
    assert tokens == expected
    assert done.speculation.faults == {DropReason.UNREACHABLE: 1}


@pytest.mark.parametrize("good_calls", [0, 1, 2])
async def test_a_defect_of_the_source_is_raised_not_swallowed(
    good_calls: int, expected: list[int]
) -> None:
    class Failing(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            if self.call_count <= good_calls:
                return Draft(tuple(right))
            raise ZeroDivisionError("a defect of the source")

    source = Failing([*PROMPT, *expected], hashing.VOCABULARY)
    session = opened()
    with pytest.raises(ZeroDivisionError):
        await streams.collect(
            session, source, streams.parameters(COUNT, block_size=4), run=sources.yielding
        )
    assert len(asyncio.all_tasks()) == 1
    at = len(session.history) - len(PROMPT)
    assert session.history[:] == [*PROMPT, *expected[:at]]
    rest = streams.parameters(COUNT - at)
    tokens, _ = await streams.collect(session, None, rest, run=sources.yielding)
    assert tokens == expected[at:]


async def test_a_defect_in_a_draft_that_is_not_needed_any_more_is_raised_too(
    expected: list[int],
) -> None:
    """The draft made ahead has failed when the first block's stop id ends it all."""

    class Failing(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            if self.call_count == 1:
                return Draft(tuple(right))
            raise ZeroDivisionError("a defect of the source")

    async def patient(step: Callable[[], Result]) -> Result:
        for _ in range(9):
            await asyncio.sleep(0)
        return step()

    source = Failing([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(COUNT, stop_ids=frozenset({expected[1]}))
    with pytest.raises(ZeroDivisionError):
        await streams.collect(opened(), source, asked, run=patient)
    assert source.call_count == 2


async def test_a_slow_useless_proposer_is_dropped_and_said_so(expected: list[int]) -> None:
    """Drafts take twice a forward's time and are always wrong."""
    clock = StandingClock()

    class Slow(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            clock.now += 0.02
            return Draft(
                tuple((token + 1) % 48 for token in right),
                compute_seconds=0.02,
                round_trip_seconds=0.02,
            )

    session = opened()
    honest = session.verifier.forward

    def forward(cache: KvCache, token_ids: Sequence[int], *, want_logits: bool) -> Logits | None:
        clock.now += 0.01
        return honest(cache, token_ids, want_logits=want_logits)

    replace_method(session.verifier, "forward", forward)
    source = Slow([*PROMPT, *expected], hashing.VOCABULARY)
    state = SpeculationState()
    asked = streams.parameters(30, adaptive=True)
    tokens, done = await streams.collect(
        session, source, asked, run=sources.yielding, state=state, clock=clock
    )
    assert tokens == expected[:30]
    assert done.speculation.drop_reason == DropReason.SLOWER_THAN_ALONE
    assert done.speculation.faults == {}, "being slow is no fault"
    # The first block loses more than enough, and so does the retry 16 blocks later.
    assert done.speculation.block_count == 2
    # 12 blocks alone since then; after 32 it is tried again.
    calls = source.call_count
    asked = streams.parameters(10, adaptive=True)
    await streams.collect(session, source, asked, run=sources.yielding, state=state, clock=clock)
    assert source.call_count == calls
    await streams.collect(
        session,
        source,
        streams.parameters(12, adaptive=True),
        run=sources.yielding,
        state=state,
        clock=clock,
    )
    assert source.call_count > calls


async def test_a_generation_that_ends_leaves_no_draft_in_flight(expected: list[int]) -> None:
    """The draft made ahead is still in flight when the stop id is generated."""

    class SlowAhead(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            if self.call_count > 1:
                await asyncio.Event().wait()
            return Draft(tuple(right))

    source = SlowAhead([*PROMPT, *expected], hashing.VOCABULARY)
    asked = GenerationParameters(
        COUNT, stop_ids=frozenset({expected[1]}), adaptive=False, draft_deadline_seconds=5.0
    )
    items = [
        item
        async for item in generate(
            opened(),
            Roster.of_one(source),
            asked,
            SessionDriver(sources.yielding, StandingClock()),
        )
    ]
    assert source.call_count == 2
    assert source.in_flight == 0
    assert isinstance(items[-1], Done)
    assert items[-1].speculation.faults == {}


async def test_sessions_that_share_a_breaker_do_not_all_wait_for_the_one_trial(
    expected: list[int],
) -> None:
    """Two generations begin when a proposer that answers nothing has cooled down."""
    clock, state = StandingClock(), SpeculationState()
    state.breaker = state.breaker.after_fault(DraftFaultKind.DEADLINE, clock.now)
    clock.now += 1.5
    asked = streams.parameters(5, draft_deadline_seconds=0.02)
    silent = [
        sources.FaultySource(expected, hashing.VOCABULARY, DraftFaultKind.DEADLINE)
        for _ in range(2)
    ]
    generations = (
        streams.collect(opened(), source, asked, run=sources.yielding, state=state, clock=clock)
        for source in silent
    )
    for tokens, _done in await asyncio.gather(*generations):
        assert tokens == expected[:5]
    assert sum(source.call_count for source in silent) == 1


async def test_one_shut_out_by_other_sessions_while_it_rests_is_asked_again(
    expected: list[int],
) -> None:
    """Found slower here, and unreachable by another session: both end, in whatever order."""
    clock, state = StandingClock(), SpeculationState()
    state.pace = replace(state.pace, alone_seconds=0.01, retry_after_blocks=16)
    state.breaker = state.breaker.after_fault(DraftFaultKind.UNREACHABLE, clock.now)
    clock.now += 1.5
    source = sources.OracleSource([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(COUNT, adaptive=True)
    tokens, done = await streams.collect(
        opened(), source, asked, run=sources.yielding, state=state, clock=clock
    )
    assert tokens == expected
    assert done.speculation.block_count > 0
    assert done.speculation.drop_reason is None
