from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kakeya_fleet.fleet.cards.card import ArchiveOffer, Card, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.fleet.views.prometheus_targets import targets

MakeCard = Callable[..., Card]
MakeView = Callable[..., NodeView]


@pytest.fixture
def view(make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer) -> MakeView:
    def make(
        node_id: str,
        liveness: Liveness = Liveness.ALIVE,
        http_address: str = "10.0.0.1:8000",
        **fields: Any,
    ) -> NodeView:
        card = make_card(node_id, verifier_offer, ngram_offer)
        return NodeView(replace(card, http_address=http_address, **fields), liveness)

    return make


def test_a_node_by_name_fleet_and_roles(view: MakeView) -> None:
    offer = ArchiveOffer(capacity_bytes=1, free_bytes=1, port=1, arithmetic="a")
    [group] = targets([view("a", archive=offer)])
    assert group["targets"] == ["10.0.0.1:8000"]
    kept = {key: text for key, text in group["labels"].items() if not key.startswith("__")}
    assert kept == {"node": "name-a", "fleet": "desk", "roles": "archive,proposer,verifier"}


def test_the_dead_the_departed_and_those_without_http_are_left_out(view: MakeView) -> None:
    states = [
        view("c", Liveness.SUSPECT),
        view("d", Liveness.DEAD),
        view("e", Liveness.LEFT),
        view("b", http_address=""),
        view("a"),
    ]
    names = [group["labels"]["node"] for group in targets(states)]
    assert names == ["name-a", "name-c"]


def test_members_are_scraped_by_https(view: MakeView) -> None:
    member = {"addresses": ("10.0.0.2:7600", "[fd00::2]:7600"), "https_port": 8443}
    [group] = targets([view("a", http_address="", **member)])
    assert group["targets"] == ["10.0.0.2:8443"]
    assert group["labels"]["__scheme__"] == "https"
    [here] = targets([view("a", **member)])
    assert here["targets"] == ["10.0.0.1:8000"]
    assert "__scheme__" not in here["labels"]


def test_liveness_is_no_label_of_the_series(view: MakeView) -> None:
    def series(liveness: Liveness) -> dict[str, str]:
        labels = targets([view("a", liveness)])[0]["labels"]
        return {key: text for key, text in labels.items() if not key.startswith("__meta_")}

    assert series(Liveness.ALIVE) == series(Liveness.SUSPECT)


def test_a_node_without_a_role_says_so(view: MakeView) -> None:
    [group] = targets([view("a", models=())])
    assert group["labels"]["roles"] == "none"
