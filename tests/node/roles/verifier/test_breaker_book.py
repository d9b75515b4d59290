"""Breakers of proposers belong to the incarnation that was at fault."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.engine.speculation.drafter import BlockDraft, Drafter, DraftingLimits
from kakeya_fleet.engine.speculation.tally import Tally
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook, SharedSpeculationState
from tests.support import draft_sources as sources
from tests.support.calls import until

KEY = ("node", "ngram")


@pytest.fixture
def incarnations() -> dict[str, str | None]:
    return {"node": "first", "other": "first"}


@pytest.fixture
def book(incarnations: dict[str, str | None]) -> BreakerBook:
    return BreakerBook(lambda: 100.0, lambda key: incarnations[key[0]])


def test_an_open_breaker_shuts_its_proposer_out_and_no_other_of_its_node(book: BreakerBook) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    assert book.shut_out() == {KEY}
    assert not book.get(KEY).closed
    assert book.get(("node", "drafter")).closed


def test_a_node_that_was_started_anew_begins_with_a_closed_breaker(
    book: BreakerBook, incarnations: dict[str, str | None]
) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    book.put(("other", "ngram"), Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    incarnations["node"] = "second"
    assert book.shut_out() == {("other", "ngram")}
    assert book.get(KEY) == Breaker()


def test_a_fault_of_the_new_process_counts_from_the_start(
    book: BreakerBook, incarnations: dict[str, str | None]
) -> None:
    worn = Breaker()
    for now in (10.0, 20.0, 40.0, 100.0):
        worn = worn.after_fault(DraftFaultKind.DEADLINE, now)
    book.put(KEY, worn)
    incarnations["node"] = "second"
    fault = book.get(KEY).after_fault(DraftFaultKind.DEADLINE, 100.0)
    book.put(KEY, fault)
    assert fault.cool_down_seconds < worn.cool_down_seconds
    assert book.shut_out() == {KEY}


def test_a_proposer_that_was_removed_shuts_nothing_out_and_is_opened_anew_with_a_closed_breaker(
    incarnations: dict[str, str | None],
) -> None:
    told: list[Breaker] = []
    book = BreakerBook(
        lambda: 100.0, lambda key: incarnations[key[0]], lambda _key, breaker: told.append(breaker)
    )
    unreachable = Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0)
    book.put(KEY, unreachable)
    incarnations["node"] = None
    assert book.shut_out() == set()
    book.put(KEY, unreachable)
    assert book.shut_out() == set()
    incarnations["node"] = "second"
    assert book.get(KEY) == Breaker()
    assert told == [unreachable]


SESSIONS = 200


class Proposer(sources.OracleSource):
    """One for all sessions: each draft waits until the test lets it come, or fail."""

    def __init__(self) -> None:
        super().__init__(range(100), 96)
        self.decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def answer(self, right: list[int], block_size: int) -> Draft:
        if not await asyncio.shield(self.decided):
            raise DraftFailed(DraftFaultKind.UNREACHABLE, "as scripted")
        return Draft(tuple(right))


class Sessions:
    """Of one node, all with the same proposer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.book = BreakerBook(lambda: self.now, lambda _key: "first")
        self.proposer = Proposer()
        limits = DraftingLimits(4, 96, deadline_seconds=5.0, adaptive=False)
        self.drafters = [
            Drafter(
                self.proposer,
                SharedSpeculationState(self.book, KEY, judging=False),
                limits,
                Tally(),
                lambda: self.now,
            )
            for _ in range(SESSIONS)
        ]
        self.history = History()
        self.history.extend([1, 2, 3])

    async def asked(self, *, comes: bool) -> tuple[int, int]:
        """All ask at once: how many drafts were asked for, and how many came."""
        before = self.proposer.call_count
        self.proposer.decided = asyncio.get_running_loop().create_future()
        asking = [
            asyncio.ensure_future(
                each.next_draft(self.history.until(len(self.history)), 4, math.inf)
            )
            for each in self.drafters
        ]
        await until(lambda: self.proposer.in_flight + _done(asking) == SESSIONS)
        self.proposer.decided.set_result(comes)
        drafts = await asyncio.gather(*asking)
        return self.proposer.call_count - before, sum(draft.received for draft in drafts)


def _done(tasks: Sequence[asyncio.Future[BlockDraft]]) -> int:
    return sum(task.done() for task in tasks)


async def test_after_the_cool_down_one_session_tries_and_all_others_wait_for_it() -> None:
    sessions = Sessions()
    assert await sessions.asked(comes=False) == (SESSIONS, 0)
    assert await sessions.asked(comes=True) == (0, 0), "it is shut out"
    first = sessions.book.get(KEY)
    assert first.cool_down_seconds == 1.0, "drafts that were lost together are one fault"
    sessions.now = first.retry_at
    assert await sessions.asked(comes=False) == (1, 0)
    second = sessions.book.get(KEY)
    assert second.cool_down_seconds == 2.0
    sessions.now = second.retry_at
    assert await sessions.asked(comes=True) == (1, 1)
    assert await sessions.asked(comes=True) == (SESSIONS, SESSIONS)
