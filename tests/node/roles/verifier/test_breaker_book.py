"""Breakers of proposers belong to the incarnation that was at fault."""

import pytest

from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook

KEY = ("node", "ngram")


@pytest.fixture
def incarnations() -> dict[str, str | None]:
    return {"node": "first", "other": "first"}


@pytest.fixture
def book(incarnations: dict[str, str | None]) -> BreakerBook:
    return BreakerBook(lambda: 100.0, lambda key: incarnations[key[0]])


def test_an_open_breaker_shuts_its_node_out(book: BreakerBook) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    assert book.shut_out() == {"node"}
    assert not book.get(KEY).closed


def test_a_node_that_was_started_anew_begins_with_a_closed_breaker(
    book: BreakerBook, incarnations: dict[str, str | None]
) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    book.put(("other", "ngram"), Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    incarnations["node"] = "second"
    assert book.shut_out() == {"other"}
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
    assert book.shut_out() == {"node"}


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
