"""Breakers of proposers belong to the process that was at fault."""

import pytest

from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook

KEY = ("node", "ngram")


@pytest.fixture
def boots() -> dict[str, str]:
    return {"node": "first", "other": "first"}


@pytest.fixture
def book(boots: dict[str, str]) -> BreakerBook:
    return BreakerBook(lambda: 100.0, lambda node_id: boots.get(node_id, ""))


def test_an_open_breaker_shuts_its_node_out(book: BreakerBook) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    assert book.shut_out() == {"node"}
    assert not book.get(KEY).closed


def test_a_node_that_was_started_anew_begins_with_a_closed_breaker(
    book: BreakerBook, boots: dict[str, str]
) -> None:
    book.put(KEY, Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    book.put(("other", "ngram"), Breaker().after_fault(DraftFaultKind.UNREACHABLE, 100.0))
    boots["node"] = "second"
    assert book.shut_out() == {"other"}
    assert book.get(KEY) == Breaker()


def test_a_fault_of_the_new_process_counts_from_the_start(
    book: BreakerBook, boots: dict[str, str]
) -> None:
    worn = Breaker()
    for now in (10.0, 20.0, 40.0, 100.0):
        worn = worn.after_fault(DraftFaultKind.DEADLINE, now)
    book.put(KEY, worn)
    boots["node"] = "second"
    fault = book.get(KEY).after_fault(DraftFaultKind.DEADLINE, 100.0)
    book.put(KEY, fault)
    assert fault.cool_down_seconds < worn.cool_down_seconds
    assert book.shut_out() == {"node"}
