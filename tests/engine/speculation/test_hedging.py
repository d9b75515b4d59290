"""A late draft is asked of a second proposer: the first answer counts, seldom at twice the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft, DraftSource
from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import Done
from kakeya_fleet.engine.speculation.hedging import HedgeBudget, RoundTrips
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.breadth import wide
from tests.support.calls import until
from tests.support.model_clock import ModelClock, timed_session

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(100)]
COUNT = 200
SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=12)
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)
ROUND_TRIP_SECONDS = 0.15
"""Far beyond what a busy machine makes of an answer that is there at once."""


class HangingSource(sources.OracleSource):
    """Answers at once and tells of 0.15 s; at the calls of `hangs`, counted from 1, never."""

    def __init__(self, text: Sequence[int], hangs: frozenset[int]) -> None:
        super().__init__(text, hashing.VOCABULARY)
        self.hangs = hangs
        self.hung = asyncio.Event()

    async def answer(self, right: list[int], block_size: int) -> Draft:
        if self.call_count in self.hangs:
            self.hung.set()
            await asyncio.Event().wait()
        return Draft(tuple(right), 0.001, ROUND_TRIP_SECONDS)


class BrokenLater(sources.OracleSource):
    """Raises what no proposer's fault is, when the other has had time to notice."""

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(text, hashing.VOCABULARY)

    async def answer(self, right: list[int], block_size: int) -> Draft:
        raise ZeroDivisionError("a defect of the source")


class OvertakenSource(HangingSource):
    """A draft that is late comes as soon as `other` was asked for it."""

    def __init__(self, text: Sequence[int], hangs: frozenset[int], other: DraftSource) -> None:
        super().__init__(text, hangs)
        self.other = cast(sources.OracleSource, other)

    async def answer(self, right: list[int], block_size: int) -> Draft:
        if self.call_count in self.hangs:
            await until(lambda: self.other.in_flight)
        return Draft(tuple(right), 0.001, ROUND_TRIP_SECONDS)


async def collected(roster: Roster | None, asked: GenerationParameters) -> tuple[list[int], Done]:
    clock = ModelClock()
    session = timed_session(clock, SPEC, PROMPT)
    return await streams.collect(session, roster, asked, run=sources.yielding, clock=clock)


ALONE: dict[SamplingParameters, list[int]] = {}
"""Each stream once."""


async def said_alone(sampling: SamplingParameters = GREEDY) -> list[int]:
    if sampling not in ALONE:
        asked = streams.parameters(COUNT, sampling=sampling)
        ALONE[sampling], _ = await collected(None, asked)
    return ALONE[sampling]


def roster_of(leader: DraftSource, second: DraftSource) -> Roster:
    """The second one is there for the first alone: no trial takes its place."""
    return Roster(
        [
            Rival(("a", "leader"), leader, SpeculationState(), 8.0),
            Rival(("b", "second"), second, SpeculationState(), 8.0, stands_in=True),
        ]
    )


async def streamed(
    roster: Roster, sampling: SamplingParameters = GREEDY, deadline_seconds: float = 5.0
) -> tuple[list[int], Done]:
    asked = streams.parameters(
        COUNT, sampling=sampling, block_size=2, draft_deadline_seconds=deadline_seconds
    )
    return await collected(roster, asked)


@pytest.mark.parametrize("sampling", [wide(GREEDY), SEEDED], ids=["greedy", "seeded"])
async def test_a_late_draft_is_had_of_the_second_and_the_late_one_is_taken_back(
    sampling: SamplingParameters,
) -> None:
    alone = await said_alone(sampling)
    text = [*PROMPT, *alone]
    leader = HangingSource(text, frozenset({30, 60}))
    second = sources.OracleSource(text, hashing.VOCABULARY)
    roster = roster_of(leader, second)
    tokens, done = await streamed(roster, sampling)
    assert tokens == alone
    told = done.speculation
    assert leader.hung.is_set()
    assert (told.hedge_count, told.hedge_won_count, second.call_count) == (2, 2, 2)
    assert told.faults == {}
    assert roster.rivals[0].state.breaker == Breaker()
    assert (leader.in_flight, second.in_flight) == (0, 0)
    by_second = [block for block in done.timeline if block.proposer == ("b", "second")]
    assert len(by_second) == 2
    assert all(block.accepted_count == block.drafted_count > 0 for block in by_second)
    assert len(asyncio.all_tasks()) == 1


async def test_where_the_late_draft_comes_first_the_second_is_taken_back() -> None:
    alone = await said_alone()
    text = [*PROMPT, *alone]
    second = sources.SilentSource(text, hashing.VOCABULARY)
    leader = OvertakenSource(text, frozenset({30, 60}), second)
    tokens, done = await streamed(roster_of(leader, second))
    assert tokens == alone
    assert (done.speculation.hedge_count, done.speculation.hedge_won_count) == (2, 0)
    assert done.speculation.faults == {}
    assert second.in_flight == 0
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("seed", [1, wide(2)])
async def test_whatever_the_second_says_the_stream_is_the_same(seed: int) -> None:
    alone = await said_alone(SEEDED)
    text = [*PROMPT, *alone]
    for second in (
        sources.AdversarialSource(text, hashing.VOCABULARY),
        sources.ChaoticSource(text, hashing.VOCABULARY, seed),
    ):
        leader = HangingSource(text, frozenset({30, 60}))
        tokens, done = await streamed(roster_of(leader, second), SEEDED, deadline_seconds=0.3)
        assert tokens == alone, f"seed {seed}"
        assert done.speculation.hedge_count >= 1
        assert (leader.in_flight, second.in_flight) == (0, 0)


async def test_one_that_is_late_from_some_draft_on_is_found_by_the_deadline() -> None:
    """Hedges cover a draft in twenty; the breaker learns of the rest."""
    alone = await said_alone()
    text = [*PROMPT, *alone]
    leader = HangingSource(text, frozenset(range(50, 1000)))
    second = sources.OracleSource(text, hashing.VOCABULARY)
    roster = roster_of(leader, second)
    tokens, done = await streamed(roster, deadline_seconds=0.3)
    assert tokens == alone
    assert 1 <= done.speculation.hedge_count <= 3
    assert not roster.rivals[0].state.breaker.closed


async def test_a_draft_from_another_state_than_the_committed_tokens_is_no_hedge() -> None:
    """A proposer that needs the verifier's vectors has those of the proposer that it serves."""
    alone = await said_alone()
    text = [*PROMPT, *alone]
    second = sources.OracleSource(text, hashing.VOCABULARY)
    second.drafts_ahead = False
    leader = HangingSource(text, frozenset({45}))
    _, done = await streamed(roster_of(leader, second), deadline_seconds=0.2)
    assert done.speculation.hedge_count == 0


async def test_a_second_that_is_shut_out_is_not_asked() -> None:
    alone = await said_alone()
    text = [*PROMPT, *alone]
    second = sources.OracleSource(text, hashing.VOCABULARY)
    roster = roster_of(HangingSource(text, frozenset({45})), second)
    shut = Breaker(3.0, DraftFaultKind.UNREACHABLE, 30.0, retry_at=float("inf"))
    roster.rivals[1].state.breaker = shut
    _, done = await streamed(roster, deadline_seconds=0.2)
    assert done.speculation.hedge_count == 0
    assert second.call_count == 0


async def test_a_defect_of_the_second_is_raised() -> None:
    alone = await said_alone()
    text = [*PROMPT, *alone]
    leader = OvertakenSource(text, frozenset({45}), second := BrokenLater(text))
    with pytest.raises(ZeroDivisionError):
        await streamed(roster_of(leader, second), deadline_seconds=0.5)
    assert len(asyncio.all_tasks()) == 1


async def test_a_generation_that_is_left_leaves_neither_draft_behind() -> None:
    alone = await said_alone()
    text = [*PROMPT, *alone]
    leader = HangingSource(text, frozenset({45}))
    second = sources.SilentSource(text, hashing.VOCABULARY)
    asked = streams.parameters(COUNT, block_size=2)
    clock = ModelClock()
    driver = SessionDriver(sources.yielding, clock)
    session = timed_session(clock, SPEC, PROMPT)
    stream = generate(session, roster_of(leader, second), asked, driver)

    async def read() -> None:
        async for _ in stream:
            pass

    reading = asyncio.create_task(read())
    await until(lambda: second.in_flight)
    assert leader.in_flight == 1
    reading.cancel()
    await asyncio.wait({reading})
    assert (leader.in_flight, second.in_flight) == (0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@given(st.lists(st.booleans(), max_size=400))
def test_hedges_are_at_most_a_twentieth_of_the_drafts(wanted: list[bool]) -> None:
    budget, hedges = HedgeBudget(), 0
    for drafts, wants in enumerate(wanted, 1):
        budget.earn()
        hedges += wants and budget.spend()
        assert hedges <= 0.05 * drafts + 1e-9


def test_a_draft_is_late_behind_nineteen_of_twenty() -> None:
    trips = RoundTrips()
    for milliseconds in range(1, 20):
        trips.add(milliseconds / 1000)
        assert trips.late_after() is None
    trips.add(0.020)
    assert trips.late_after() == 0.019
    for _ in range(64):
        trips.add(0.5)
    assert trips.late_after() == 0.5
