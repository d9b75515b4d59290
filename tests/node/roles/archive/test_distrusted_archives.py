"""An archive that gave wrong numbers is left alone for its time, and no other is."""

import pytest

from kakeya_fleet.fleet.cards.card import ArchiveOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.node.roles.archive.distrusted_archives import DistrustedArchives
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from tests.support.neighbourhood import Directory, View, card

SECONDS = 3600.0
OF_NUMBERS = [fault for fault in RestorerFault if fault.is_of_numbers]


def fleet(port: int = 7001) -> View:
    """Two archives, and a node without one at the address of the first."""
    directory = Directory()
    for node_id, address, at in (("a", "10.0.0.1:7", port), ("b", "10.0.0.2:7", 7001)):
        offer = ArchiveOffer(1 << 20, 1 << 20, at, "")
        directory.views[node_id] = NodeView(card(node_id, address, (), offer), Liveness.ALIVE)
    directory.views["c"] = NodeView(card("c", "10.0.0.1:8", ()), Liveness.ALIVE)
    return View("c", directory)


@pytest.mark.parametrize("fault", OF_NUMBERS)
def test_one_that_gave_wrong_numbers_is_left_alone_for_its_time(fault: RestorerFault) -> None:
    distrusted = DistrustedArchives(SECONDS)
    distrusted.note("10.0.0.1:7001", fault, now=100.0)
    found = distrusted.by_node(fleet(), now=100.0 + SECONDS - 9.0)
    assert found.keys() == {"a"}
    assert found["a"].endswith(", and is not asked for 9 s")
    assert distrusted.by_node(fleet(), now=100.0 + SECONDS) == {}
    assert distrusted.by_node(fleet(), now=100.0) == {}, "forgotten, not hidden"


@pytest.mark.parametrize("fault", [fault for fault in RestorerFault if fault not in OF_NUMBERS])
def test_one_that_was_only_lost_is_asked_again(fault: RestorerFault) -> None:
    distrusted = DistrustedArchives(SECONDS)
    distrusted.note("10.0.0.1:7001", fault, now=100.0)
    assert distrusted.by_node(fleet(), now=100.0) == {}


def test_one_that_is_started_anew_begins_anew() -> None:
    distrusted = DistrustedArchives(SECONDS)
    distrusted.note("10.0.0.1:7001", RestorerFault.FALSE_ANSWER, now=100.0)
    assert distrusted.by_node(fleet(port=7002), now=100.0) == {}
