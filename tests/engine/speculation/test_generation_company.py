"""A generation beside others asks for drafts only while that pays for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft, DraftSource
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Result, TurnRunner
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.generation import LAST_TOKENS, generate
from kakeya_fleet.engine.speculation.generation_report import Committed
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.ticking_clock import TickingClock

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = list(range(30))
COUNT = 90


class Told(Company):
    """Says what it is told to, and what it heard."""

    def __init__(self, *, rests: bool) -> None:
        super().__init__(lambda: 0.0)
        self.heard = 0
        self.connected_at: int | None = None
        self._told = rests

    @property
    def rests(self) -> bool:
        return self._told

    def committed(self, token_count: int, seconds_ago: float = 0.0) -> None:
        self.heard += token_count


async def said(
    company: Told,
    source: DraftSource,
    *,
    adaptive: bool = True,
    run: TurnRunner = sources.yielding,
    most: int = COUNT,
    later: bool = False,
    count: int = COUNT,
) -> list[int]:
    """The first `most` tokens; who wants no more leaves. The source may be had `later` only."""
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(PROMPT)
    found: list[int] = []
    asked = streams.parameters(count, adaptive=adaptive)
    driver = SessionDriver(run, TickingClock())

    async def connect() -> Roster | None:
        company.connected_at = len(found)
        return Roster.of_one(source)

    now, then = (None, connect) if later else (Roster.of_one(source), None)
    stream = generate(session, now, asked, driver, company=company, connect=then)
    async with aclosing(stream):
        async for item in stream:
            if isinstance(item, Committed):
                found += item.token_ids
            if len(found) >= most:
                break
    return found


def source_of(expected: list[int]) -> sources.OracleSource:
    return sources.OracleSource([*PROMPT, *expected], hashing.VOCABULARY)


@pytest.mark.parametrize("rests", [True, False])
@pytest.mark.parametrize("adaptive", [True, False])
async def test_while_all_rest_nobody_is_asked_and_the_stream_is_the_same(
    *, rests: bool, adaptive: bool
) -> None:
    """Whoever names a proposer has its drafts all the same."""
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)
    source, company = source_of(expected), Told(rests=rests)
    assert await said(company, source, adaptive=adaptive) == expected
    assert (source.call_count == 0) is (rests and adaptive)
    assert company.heard == COUNT


async def test_one_that_begins_at_rest_looks_for_proposers_once_all_rest_no_more() -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)
    source, company = source_of(expected), Told(rests=True)
    assert await said(company, source, later=True) == expected
    assert source.call_count == 0
    assert company.connected_at is None

    class Waking(Told):
        @property
        def rests(self) -> bool:
            return self.heard < COUNT // 2

    waking = Waking(rests=True)
    assert await said(waking, source, later=True) == expected
    assert source.call_count > 0
    assert waking.connected_at is not None
    assert waking.connected_at >= COUNT // 2
    assert waking.heard == COUNT
    assert waking._count == waking._drafting_count == 0
    # Nor for few tokens, which would be said before one is found.
    few = Waking(rests=True)
    few.heard = COUNT
    assert await said(few, source, later=True, count=LAST_TOKENS) == expected[:LAST_TOKENS]
    assert few.connected_at is None


async def test_whatever_ends_a_generation_it_is_none_of_the_company_any_more() -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, COUNT, GREEDY)
    company = Told(rests=False)

    async def failing(turn: Callable[[], Result]) -> Result:
        if company.heard > COUNT // 3:
            raise ConnectionError
        await asyncio.sleep(0)
        return turn()

    await said(company, source_of(expected))
    assert company._count == company._drafting_count == 0
    await said(company, source_of(expected), most=20)
    assert company._count == company._drafting_count == 0
    company.heard = 0
    with pytest.raises(ConnectionError):
        await said(company, source_of(expected), run=failing)
    assert company._count == company._drafting_count == 0


async def test_who_cannot_take_its_drafts_back_has_left_all_the_same() -> None:
    """A source that fails as no proposer may, in a draft that is on its way."""

    class Broken(sources.OracleSource):
        async def answer(self, tokens: list[int], block_size: int) -> Draft:
            if self.call_count > 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None
            return await super().answer(tokens, block_size)

    company = Told(rests=False)
    with pytest.raises(ZeroDivisionError):
        await said(company, Broken([], hashing.VOCABULARY), adaptive=False, most=1)
    assert company._count == company._drafting_count == 0
