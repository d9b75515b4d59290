"""A verifier decides tokens while a draft of another machine is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.blocking import Result
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Block, Turn, TurnRunner, VerifyTurn, run_turns
from kakeya_fleet.engine.speculation import generation
from kakeya_fleet.engine.speculation.block_measurement import BlockMeasurement
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_report import Done, DropReason
from kakeya_fleet.engine.speculation.meanwhile import caught_up
from kakeya_fleet.engine.speculation.pace import WAITED_GAIN, Pace
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.steps import MeasuredSteps
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.ticking_clock import TickingClock

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [(7 * index + index * index) % 48 for index in range(50)]
SEEDED = SamplingParameters(temperature=0.5, seed=9)
COUNT, ON_ITS_WAY = 60, 5
TICK = 1e-9
"""Seconds, less than anything takes: all is told at once."""
LOOP_TURNS = 8
IDS = st.lists(st.integers(0, 3), max_size=12)


@given(IDS, IDS)
def test_what_is_left_of_a_draft_is_behind_what_was_decoded(
    drafted: list[int], decoded: list[int]
) -> None:
    left, meanwhile = caught_up(drafted, decoded, 2.0)
    assert (meanwhile.token_count, meanwhile.seconds) == (len(decoded), 2.0)
    agreed, dropped = meanwhile.agreed_count, meanwhile.dropped_count
    assert drafted[:agreed] == decoded[:agreed]
    assert agreed + dropped + len(left) == len(drafted)
    if dropped:
        assert not left
        assert drafted[agreed] != decoded[agreed]
    else:
        assert [*decoded[:agreed], *left] == drafted


TURNS = 200
"""Of the event loop, in which a verifier that goes on has told more than it is waited for."""
FAR = 1e3
"""Seconds that a draft says to have taken: many tokens' time."""


class FarSource(sources.OracleSource):
    """Its drafts come once so many tokens were told, or none are; wrong from `wrong_at` on."""

    def __init__(self, text: Sequence[int], wrong_at: int | None = None) -> None:
        super().__init__(text, hashing.VOCABULARY)
        self.wrong_at = wrong_at
        self.asked_at: list[int] = []
        self.told_count = 0

    async def draft(self, history: Sequence[int], *others: object) -> Draft:
        asked_at = len(history)
        self.asked_at.append(asked_at)
        draft = await super().draft(history, *others)  # type: ignore[arg-type]
        # What is decoded meanwhile is nothing that it was asked behind.
        assert len(history) == asked_at
        return draft

    async def answer(self, right: list[int], block_size: int) -> Draft:
        until = self.told_count + ON_ITS_WAY
        for _ in range(TURNS):
            if self.told_count >= until:
                break
            await asyncio.sleep(0)
        if self.wrong_at is not None:
            right[self.wrong_at :] = [(each + 1) % 48 for each in right[self.wrong_at :]]
        return Draft(tuple(right), compute_seconds=1e-6, round_trip_seconds=FAR)


async def forward_by_forward(turn: Turn[Result]) -> Result:
    """Runs a turn as a verifier's thread does: the event loop turns between its forwards."""
    while True:
        (ended,) = run_turns([(turn, turn.rows)])
        told = turn.told(ended)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        if told is not None:
            if told.error is not None:
                raise told.error
            return cast(Result, told.result)


async def said(
    source: FarSource,
    sampling: SamplingParameters = GREEDY,
    *,
    company: Company | None = None,
    most: int | None = None,
    run: TurnRunner = sources.yielding,
    gather_seconds: float = 0.0,
) -> tuple[list[int], Done | None]:
    """What comes of `source`, apart; each token that is read goes on its way there."""
    verifier = hashing.HashVerifier(width=32)
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(PROMPT)
    roster = Roster([Rival(("node", "far"), source, SpeculationState(), apart=True)])
    driver = SessionDriver(run, TickingClock(), gather_seconds=lambda: gather_seconds)
    asked = streams.parameters(COUNT, sampling=sampling, adaptive=True)
    found: list[int] = []
    done = None
    stream = generate(session, roster, asked, driver, company=company)
    async with aclosing(stream):
        async for item in stream:
            if isinstance(item, Done):
                done = item
                break
            found += item.token_ids
            source.told_count += len(item.token_ids)
            if len(found) == most:
                break
    return found, done


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("wrong_at", [None, 0, 2, ON_ITS_WAY + 2])
async def test_the_stream_is_the_same_and_begins_before_the_first_draft(
    wrong_at: int | None, sampling: SamplingParameters
) -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, sampling)
    source = FarSource([*PROMPT, *expected], wrong_at)
    tokens, done = await said(source, sampling)
    assert tokens == expected
    assert source.asked_at[0] == len(PROMPT)
    assert source.in_flight == 0
    assert done is not None
    blocks = [block.drafted_count for block in done.timeline]
    assert blocks[:ON_ITS_WAY] == [0] * ON_ITS_WAY
    counts = done.speculation
    if wrong_at is None:
        # What was decoded meanwhile counts as drafted, and as right.
        assert counts.accepted_count == counts.drafted_count > sum(blocks) > 0
    elif wrong_at < ON_ITS_WAY:
        # Such a draft takes no row of any forward.
        assert sum(blocks) == 0
        assert counts.accepted_count < counts.tried_count < counts.drafted_count
        (proposer,) = counts.proposers
        assert proposer.drafted_count == counts.drafted_count


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_a_draft_that_was_overtaken_ends_nothing_and_the_next_one_is_asked_for(
    sampling: SamplingParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier goes on in the turn that it is in: no forward waits for the event loop."""
    turns: list[Block] = []

    class Counted(VerifyTurn):
        def __init__(self, session: Session, block: Block, *others: Callable[[], float]) -> None:
            turns.append(block)
            super().__init__(session, block, *others)

    monkeypatch.setattr(generation, "VerifyTurn", Counted)
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, sampling)
    source = FarSource([*PROMPT, *expected], wrong_at=0)
    tokens, done = await said(source, sampling, run=forward_by_forward, gather_seconds=TICK)
    assert tokens == expected
    assert done is not None
    counts = done.speculation
    # Each of these was asked for behind all that was decoded then, and taken note of.
    assert source.asked_at == sorted(set(source.asked_at))
    assert len(source.asked_at) > 1
    assert counts.drafted_count > 0
    assert counts.accepted_count == 0
    assert not [block for block in turns if not block.draft]
    assert source.in_flight == 0


async def test_a_far_proposer_that_dies_on_its_way_costs_no_token() -> None:
    class Dying(FarSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            if len(self.asked_at) > 1:
                raise DraftFailed(DraftFaultKind.UNREACHABLE, "as scripted")
            return await super().answer(right, block_size)

    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)
    tokens, done = await said(Dying([*PROMPT, *expected]))
    assert tokens == expected
    assert done is not None
    assert done.speculation.faults[DropReason.UNREACHABLE] > 0


async def test_leaving_takes_back_what_is_on_its_way() -> None:
    source = FarSource([*PROMPT, *hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)])
    tokens, _ = await said(source, most=2)
    assert len(tokens) == 2
    assert source.in_flight == 0


@pytest.mark.parametrize("others", [0, 1])
async def test_among_others_who_have_the_verifier_meanwhile_a_draft_is_waited_for(
    others: int,
) -> None:
    class Busy(Company):
        @property
        def rests(self) -> bool:
            return False

    company = Busy(lambda: 0.0)
    for _ in range(others):
        company.enter(drafts=True)
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)
    tokens, done = await said(FarSource([*PROMPT, *expected]), company=company)
    assert tokens == expected
    assert done is not None
    assert (done.timeline[0].drafted_count > 0) is (others > 0)


FORWARDS = MeasuredSteps.of([(1, 0.01), (32, 0.01)])
DRAFTS = MeasuredSteps.of([(1, 0.0025), (8, 0.02)], padded=False)


def measured(seconds: float, committed: int, *, went_on: bool = False) -> BlockMeasurement:
    return BlockMeasurement(
        drafted_count=8,
        accepted_count=committed - 1,
        committed_count=committed,
        verify_seconds=0.01,
        wait_seconds=seconds - 0.01,
        round_trip_seconds=seconds - 0.01,
        compute_seconds=0.01,
        made_count=8,
        went_on=went_on,
    )


def test_a_draft_that_wins_much_is_waited_for_and_one_that_does_not_is_not() -> None:
    alone = Pace().knowing_alone(0.01)
    assert not alone.waits
    assert not Pace(expected_gain=9.0).knowing_alone(0.01).waits
    winning = alone.after_block(measured(0.05, 8))
    assert 0.01 / winning.token_seconds > WAITED_GAIN
    assert winning.waits
    losing = alone.after_block(measured(0.05, 5))
    assert not losing.waits
    # One that is there within a token's time is waited for all the same.
    assert alone.after_block(measured(0.015, 1)).waits


def test_beside_the_opening_of_its_source_nothing_is_learned_of_how_fast_a_proposer_is() -> None:
    opened = Pace().knowing_alone(0.01).after_block(measured(0.2, 19, went_on=True))
    assert opened.token_seconds == 0.0
    for gain in (2.0, 1.0):
        expecting = Pace(expected_gain=gain).knowing_alone(0.01)
        after = expecting.after_block(measured(0.2, 19, went_on=True))
        assert after.waits is (gain > WAITED_GAIN)


def test_after_a_first_draft_that_would_not_have_paid_nobody_waits_for_the_next() -> None:
    expecting = Pace(expected_gain=2.0, verify_steps=FORWARDS, draft_steps=DRAFTS)
    expecting = expecting.knowing_alone(0.01)
    # Eight drafted tokens take two tokens' time, and as long to verify, however long it reads.
    for accepted, pays in ((2, False), (3, True)):
        first = replace(
            measured(0.2, 19, went_on=True), accepted_count=accepted, compute_seconds=0.15
        )
        for reads in (True, False):
            assert expecting.after_block(replace(first, reads=reads)).expected_gain == 2.0 * pays


def test_going_on_costs_what_it_slows_and_not_the_time_of_the_draft() -> None:
    pace = Pace().knowing_alone(0.01)
    # Twenty tokens' time, in which nineteen were decoded and one was verified.
    assert pace.after_block(measured(0.2, 20, went_on=True)).lost_tokens <= 0.0
    slowed = pace.after_block(measured(0.2, 18, went_on=True))
    assert slowed.lost_tokens == pytest.approx(20 * 0.98 - 18)
