from dataclasses import replace

from kakeya_fleet.fleet.cards.card import ArchiveOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.node.roles.archive.answer_waits import ANSWERS_KEPT, LEAST_ANSWERS, AnswerWaits
from scripts.simulator.cards import simulated_card
from tests.support.neighbourhood import Directory, View


class Fleet(View):
    """Two nodes with an archive each, one without a known address, one without an archive."""

    def __init__(self) -> None:
        super().__init__("here", Directory())
        offers = [ArchiveOffer(1, 1, 7001, ""), ArchiveOffer(1, 1, 7002, ""), None]
        self.views = [
            NodeView(replace(simulated_card(index), archive=offer), Liveness.ALIVE)
            for index, offer in enumerate([*offers, offers[0]])
        ]
        self.ids = [view.card.node_id for view in self.views]

    def nodes(self) -> list[NodeView]:
        return self.views

    def address(self, node_id: str) -> str | None:
        addresses = ["10.0.0.1:7600", "[fd00::1]:7600", "10.0.0.3:7600", None]
        return addresses[self.ids.index(node_id)]


def test_the_median_of_the_latest_answers_by_node() -> None:
    waits, fleet = AnswerWaits(), Fleet()
    for address in ("10.0.0.1:7001", "[fd00::1]:7002", "10.0.0.3:7001"):
        for _ in range(LEAST_ANSWERS - 1):
            waits.observe(address, 0.25)
    assert waits.by_node(fleet) == {}
    waits.observe("10.0.0.1:7001", 9.0)
    assert waits.by_node(fleet) == {fleet.ids[0]: 0.25}
    waits.observe("[fd00::1]:7002", 0.25)
    assert waits.by_node(fleet) == {fleet.ids[0]: 0.25, fleet.ids[1]: 0.25}
    for _ in range(ANSWERS_KEPT):
        waits.observe("10.0.0.1:7001", 0.5)
    assert waits.medians()["10.0.0.1:7001"] == 0.5
