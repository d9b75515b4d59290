from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import ArchiveOffer, Card, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.archive_choice import (
    ArchiveChoice,
    ArchiveRequest,
    choose_archives,
)
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView

MakeCard = Callable[..., Card]
OFFER = ArchiveOffer(capacity_bytes=1 << 30, free_bytes=1 << 30, port=7001, arithmetic="torch")


def node(make_card: MakeCard, node_id: str, offer: ArchiveOffer | None = OFFER) -> NodeView:
    return NodeView(replace(make_card(node_id), archive=offer), Liveness.ALIVE)


@pytest.fixture
def nodes(make_card: MakeCard) -> list[NodeView]:
    return [node(make_card, name) for name in ("self", "far", "near", "unmeasured")]


def chosen(request: ArchiveRequest, nodes: list[NodeView]) -> ArchiveChoice:
    addresses = {view.card.node_id: view.card.addresses[0] for view in nodes}
    trips = {"far": 0.02, "near": 0.0004}
    return choose_archives(request, nodes, addresses.get, trips.get)


def names(choice: ArchiveChoice) -> list[str]:
    return [candidate.node_id for candidate in choice.candidates]


def test_the_nearest_comes_first_and_the_nodes_own_memory_last(nodes: list[NodeView]) -> None:
    for order in (nodes, nodes[::-1]):
        choice = chosen(ArchiveRequest("self"), order)
        assert names(choice) == ["near", "far", "unmeasured", "self"]
        assert choice.objections == ()
    best = choice.candidates[0]
    assert best.address == "near.local:7001"
    assert "0.40 ms" in best.reason
    assert "itself" in choice.candidates[-1].reason


def test_the_named_one_is_asked_alone(nodes: list[NodeView]) -> None:
    choice = chosen(ArchiveRequest("self", node_id="far"), nodes)
    assert names(choice) == ["far"]
    assert len(choice.objections) == 3


def test_what_cannot_serve_is_left_out_with_its_reason(
    make_card: MakeCard, nodes: list[NodeView]
) -> None:
    small = node(make_card, "small", replace(OFFER, capacity_bytes=1000, free_bytes=1000))
    other = node(make_card, "other", replace(OFFER, arithmetic="mlx"))
    dead = replace(node(make_card, "dead"), liveness=Liveness.DEAD)
    skewed = node(make_card, "skewed")
    skewed = replace(skewed, card=replace(skewed.card, protocol_min=9, protocol_max=9))
    without = node(make_card, "without", None)
    request = ArchiveRequest("self", needed_bytes=2000, arithmetic="torch")
    choice = chosen(request, [*nodes, small, other, dead, skewed, without])
    assert names(choice) == ["near", "far", "unmeasured", "self"]
    text = " ".join(choice.objections)
    assert len(choice.objections) == 4
    for word in ("dead", "mlx", "1000 B", "protocol 9", "2.0 KiB"):
        assert word in text
    # Before there was an archive, any arithmetic will do.
    assert "other" in names(chosen(ArchiveRequest("self"), [other]))


def test_who_is_suspect_is_asked_when_nobody_else_is_left(
    make_card: MakeCard, nodes: list[NodeView]
) -> None:
    suspect = replace(node(make_card, "slow"), liveness=Liveness.SUSPECT)
    asked = ArchiveRequest("self", takes_suspects=True)
    assert names(chosen(asked, [suspect, *nodes])) == [
        *("near", "far", "unmeasured", "self", "slow")
    ]
    (alone,) = chosen(asked, [suspect]).candidates
    assert alone.reason.endswith(
        "name-slow is suspect, and no other node has an archive with room."
    )
    # Nobody who asked for no archive gets such a one; and one that failed this very session is
    # not waited for again: that would cost more than it may bring.
    for request in (ArchiveRequest("self"), replace(asked, lost=frozenset({"slow"}))):
        again = chosen(request, [suspect])
        assert (again.candidates, again.objections) == ((), ("name-slow is suspect.",))


def test_a_plan_says_where_evicted_positions_go(
    make_card: MakeCard, verifier_offer: ModelOffer, nodes: list[NodeView]
) -> None:
    verifier = NodeView(make_card("v", verifier_offer), Liveness.ALIVE)
    restored = PlanRequest("tiny", kv_strategy=KvStrategy.RESTORED)
    measured = Measurements(round_trips={("v", "far"): 0.001, ("v", "near"): 0.01})
    made = plan(restored, [verifier, *nodes], measured)
    assert made.archive is not None
    assert (made.archive.node_id, made.archive.address) == ("far", "far.local:7001")
    named = plan(replace(restored, archive_node_id="near"), [verifier, *nodes], measured)
    assert named.archive is not None
    assert named.archive.node_id == "near"
    alone = plan(restored, [verifier], measured)
    assert alone.archive is None
    assert any("fleet join --serve archive=1GiB" in reason for reason in alone.reasons)
    for other in (
        replace(restored, without_archive=True),
        replace(restored, kv_strategy=KvStrategy.SINK_WINDOW),
    ):
        made = plan(other, [verifier, *nodes], measured)
        assert made.archive is None
        assert not any("evicted" in reason for reason in made.reasons)
