"""What a token takes alone, as sessions tell each other."""

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.alone_book import LEAST_TOKENS, AloneBook
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.latest_book import KEPT_SECONDS
from kakeya_fleet.engine.speculation.pace import Pace
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.trial_book import HISTORY_TOKENS
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.model_clock import FORWARD_SECONDS, ModelClock, timed_session

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=12)
PROMPT = list(range(40))


def test_the_median_of_enough_of_them_counts_for_histories_as_long_and_for_a_while() -> None:
    now = 0.0
    book = AloneBook(lambda: now)
    book.made([1.0] * (LEAST_TOKENS - 1), SPEC, 10)
    assert book.seconds(SPEC, 10) == 0.0
    book.made([0.01] * (LEAST_TOKENS - 1) + [5.0], SPEC, 10)
    assert book.seconds(SPEC, HISTORY_TOKENS - 1) == 0.01
    assert book.seconds(SPEC, HISTORY_TOKENS) == 0.0
    book.made([0.02] * LEAST_TOKENS, SPEC, 3 * HISTORY_TOKENS)
    assert (book.seconds(SPEC, 10), book.seconds(SPEC, 2 * HISTORY_TOKENS)) == (0.01, 0.02)
    # A full cache is another matter, whatever room it has.
    full = [CacheSpec(CacheKind.CONTIGUOUS, capacity=each, grows=True) for each in (100, 900)]
    assert book.seconds(full[0], 10) == 0.0
    book.made([0.03] * LEAST_TOKENS, full[0], 10)
    assert (book.seconds(full[1], 10), book.seconds(SPEC, 10)) == (0.03, 0.01)
    now = KEPT_SECONDS
    assert book.seconds(SPEC, 10) == 0.0


def test_what_others_found_counts_until_a_session_finds_out_itself() -> None:
    pace = Pace().knowing_alone(0.5)
    assert pace.alone_seconds == 0.5
    own = pace.after_alone([0.25])
    assert own.alone_seconds == 0.25
    assert own.knowing_alone(0.5).alone_seconds == 0.25


async def test_one_that_decodes_alone_tells_one_that_drafts_unless_others_generate() -> None:
    async def told(company: Company, roster: Roster | None) -> None:
        clock = ModelClock()
        session = timed_session(clock, SPEC, PROMPT)
        driver = SessionDriver(sources.yielding, clock, gather_seconds=lambda: 1e6)
        asked = streams.parameters(30, adaptive=True)
        async for _ in generate(session, roster, asked, driver, company=company):
            pass

    crowd = Company(lambda: 0.0)
    crowd.enter(drafts=False)
    await told(crowd, None)
    assert crowd.alone.seconds(SPEC, len(PROMPT)) == 0.0
    company = Company(lambda: 0.0)
    await told(company, None)
    assert company.alone.seconds(SPEC, len(PROMPT)) == pytest.approx(FORWARD_SECONDS)
    source = sources.OracleSource([], hashing.VOCABULARY)
    for apart in (True, False):
        rival = Rival(("node", "model"), source, SpeculationState(), apart=apart)
        roster = Roster([rival])
        roster.know_alone(company.alone.seconds(SPEC, len(PROMPT)))
        assert (rival.state.pace.alone_seconds > 0.0) is apart
        await told(company, roster)
        assert rival.state.pace.alone_seconds > 0.0
