"""Tokens without drafts that are told together: fewer messages, the same stream."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.drafting import Drafting
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_report import Committed, Done, StopReason
from kakeya_fleet.engine.speculation.pace import FIRST_RETRY_BLOCKS
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.gated_verifier import GatedVerifier, StandingClock
from tests.support.ticking_clock import TickingClock

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=400, grows=True)
PROMPT = [(7 * index + index * index) % 48 for index in range(50)]
SEEDED = SamplingParameters(temperature=0.5, seed=9)


def opened(verifier: hashing.HashVerifier, spec: CacheSpec = SPEC) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(PROMPT)
    return session


async def told(
    session: Session, count: int, gather_seconds: float, roster: Roster | None = None
) -> list[Committed | Done]:
    driver = SessionDriver(sources.yielding, TickingClock(), gather_seconds=lambda: gather_seconds)
    asked = streams.parameters(count, sampling=SEEDED, adaptive=True)
    return [item async for item in generate(session, roster, asked, driver)]


async def test_each_token_has_its_block_however_many_are_told_together() -> None:
    """That the first one is told at once, and how many then: `test_decoding`."""
    *messages, done = await told(opened(hashing.HashVerifier()), 30, 1e6)
    assert isinstance(done, Done)
    assert len(messages) <= 2
    told_until = len(PROMPT)
    for each in messages:
        assert isinstance(each, Committed)
        assert each.first_index == told_until
        told_until += len(each.token_ids)
    assert told_until == len(PROMPT) + 30
    assert done.speculation.verify_forward_count == 30
    assert [block.committed_count for block in done.timeline] == [1] * 30
    assert [block.first_index for block in done.timeline] == list(range(50, 80))
    starts = [block.start_seconds for block in done.timeline]
    assert starts == sorted(starts)


@pytest.mark.parametrize("gather_seconds", [0.0, 7.0, 1e6])
async def test_the_stream_is_the_same(gather_seconds: float) -> None:
    expected = hashing.expected_stream(PROMPT, SPEC, 60, SEEDED)
    stop = next(token for token in expected[20:] if token not in expected[:20])
    for stop_ids, end, reason in (
        (frozenset[int](), 60, StopReason.MAX_TOKENS),
        (frozenset({stop}), expected.index(stop) + 1, StopReason.STOP_TOKEN),
    ):
        tokens, done = await streams.collect(
            opened(hashing.HashVerifier()),
            None,
            streams.parameters(60, sampling=SEEDED, stop_ids=stop_ids),
            run=sources.yielding,
            clock=TickingClock(),
            gather_seconds=gather_seconds,
        )
        assert (tokens, done.stop_reason) == (expected[:end], reason)


class WrongSource(sources.OracleSource):
    """No token of it is ever chosen."""

    async def answer(self, right: list[int], block_size: int) -> Draft:
        return Draft(tuple((token + 1) % self.vocabulary for token in right), 0.1)


@pytest.mark.parametrize("gather_seconds", [0.0, 1e6])
async def test_drafts_that_do_not_pay_leave_tokens_that_are_told_together(
    gather_seconds: float,
) -> None:
    """As many as drafting rests: nobody is asked meanwhile, and who drafts is tried in time."""
    expected = hashing.expected_stream(PROMPT, SPEC, 150, SEEDED)
    roster = Roster.of_one(WrongSource(PROMPT + expected, hashing.VOCABULARY))
    *messages, done = await told(opened(hashing.HashVerifier()), 150, gather_seconds, roster)
    assert isinstance(done, Done)
    tokens = [each.token_ids for each in messages if isinstance(each, Committed)]
    assert [token for each in tokens for token in each] == expected
    assert sum(block.drafted_count > 0 for block in done.timeline) < 10
    # The block behind a draft is made before it is known that drafting rests.
    rests = [FIRST_RETRY_BLOCKS * 2**each - 1 for each in range(3)]
    together = [len(each) for each in tokens if len(each) > 1]
    assert together[:3] == (rests if gather_seconds else [])


async def test_what_came_before_a_forward_failed_is_told_before_its_error() -> None:
    verifier = hashing.HashVerifier()
    verifier.pool.budget_bytes = 9 * hashing.SLAB_BYTES
    session = opened(verifier, GROWING)
    driver = SessionDriver(sources.yielding, TickingClock(), gather_seconds=lambda: 1e6)
    tokens: list[int] = []
    with pytest.raises(OutOfKvMemory):
        async for item in generate(session, None, streams.parameters(60, sampling=SEEDED), driver):
            assert isinstance(item, Committed)
            tokens += item.token_ids
    assert session.history[len(PROMPT) :] == tokens
    assert tokens == hashing.expected_stream(PROMPT, GROWING, len(tokens), SEEDED)
    assert len(tokens) > 10


async def test_a_deadline_ends_between_tellings() -> None:
    tokens, done = await streams.collect(
        opened(hashing.HashVerifier()),
        None,
        streams.parameters(1000, sampling=SEEDED, deadline_seconds=200.0),
        run=sources.yielding,
        clock=TickingClock(),
        gather_seconds=1e6,
    )
    assert done.stop_reason is StopReason.DEADLINE
    # Also where it could have gathered for longer: a token takes three looks at the clock.
    assert 30 < len(tokens) < 70
    assert tokens == hashing.expected_stream(PROMPT, SPEC, len(tokens), SEEDED)


class Watched(Company):
    """Has all rest until it is told not to."""

    has_all_rest = True

    @property
    def rests(self) -> bool:
        return self.has_all_rest


@pytest.mark.parametrize("why", ["the node leaves", "drafts pay again", "another is tried"])
async def test_a_turn_that_goes_on_is_not_seen_to_its_end(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the forward behind the telling at which its generation hears of it."""
    expected = hashing.expected_stream(PROMPT, SPEC, 90, SEEDED)
    verifier, clock, company = GatedVerifier(), StandingClock(), Watched(lambda: 0.0)
    session = opened(verifier)
    source = sources.OracleSource(PROMPT + expected, hashing.VOCABULARY)
    run, has_come = sources.ThreadRunner(), False
    driver = SessionDriver(run, clock, gather_seconds=lambda: 1.0)
    await driver.prefill(session)
    verifier.shut()
    leaves, tries = why == "the node leaves", why == "another is tried"
    if tries:
        monkeypatch.setattr(Drafting, "rest_blocks", property(lambda _: 0 if has_come else 60))
    stream = generate(
        session,
        Roster.of_one(source),
        streams.parameters(90, sampling=SEEDED, adaptive=True),
        driver,
        should_stop=lambda: has_come and leaves,
        company=None if tries else company,
    )
    verifier.let(1)
    said = [await anext(stream)]
    # The first token is told; the second waits at the gate.
    clock.now, company.has_all_rest, has_come = 1.0, False, True
    verifier.let(1)
    said.append(await anext(stream))
    if not leaves:
        verifier.let(1)
        said.append(await anext(stream))
        assert source.call_count == 0
    verifier.let(1 << 16)
    said += [each async for each in stream]
    run.close()
    *messages, done = said
    assert isinstance(done, Done)
    tokens = [token for each in messages if isinstance(each, Committed) for token in each.token_ids]
    if leaves:
        assert (tokens, done.stop_reason) == (expected[:2], StopReason.DRAINING)
        assert source.call_count == 0
    else:
        assert tokens == expected
        assert [block.drafted_count > 0 for block in done.timeline[:4]] == [False] * 3 + [True]
