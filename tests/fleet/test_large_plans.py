"""Plans of fleets that are large, or that somebody made look large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import Card, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import ModelNotFound, NoPlacement
from kakeya_fleet.fleet.placement.candidates import MAX_REJECTIONS
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView
from kakeya_fleet.node.planning.plan_wire import plan_to_wire
from kakeya_fleet.node.rpc.grpc_settings import CONTROL_MESSAGE_BYTES

MakeCard = Callable[..., Card]
TINY = PlanRequest("tiny", kv_strategy=KvStrategy.SINK_WINDOW)
# gRPC's bound on the headers of an answer, in which errors travel.
HEADER_BYTES = 8192


def fleet_of(node_count: int, make_card: MakeCard, *offers: ModelOffer) -> list[NodeView]:
    """Nodes with the longest names that a card may have, each with all offers."""
    first = make_card("0" * 64, *offers)
    return [
        NodeView(
            replace(first, node_id=f"{index:064}", name=f"{index:0256}"),
            Liveness.ALIVE,
        )
        for index in range(node_count)
    ]


@pytest.mark.parametrize("node_count", [140, 10_000])
def test_a_plan_of_many_nodes_with_both_roles_fits_a_message_and_says_what_it_leaves_out(
    node_count: int, make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    nodes = fleet_of(node_count, make_card, verifier_offer, ngram_offer)
    made = plan(TINY, nodes, Measurements())
    assert plan_to_wire(made).ByteSize() < CONTROL_MESSAGE_BYTES
    assert len(made.rejections) == MAX_REJECTIONS
    assert f"Of {node_count} verifiers of tiny only the 64 nearest were looked at." in made.reasons
    assert f"Of {node_count} proposers only the 64 nearest were looked at." in made.reasons
    assert any("rejected pairings the 64 fastest are listed" in each for each in made.reasons)


def test_nodes_that_were_reached_come_before_any_number_of_others(
    make_card: MakeCard, verifier_offer: ModelOffer
) -> None:
    nodes = fleet_of(500, make_card, verifier_offer)
    honest = nodes[-1].card.node_id
    made = plan(TINY, nodes, Measurements(round_trips={("here", honest): 0.001}))
    known = {made.verifier.node_id, *(each.verifier.node_id for each in made.rejections)}
    assert honest in known


def test_errors_of_large_fleets_fit_their_headers(
    make_card: MakeCard, verifier_offer: ModelOffer
) -> None:
    unmeasured = replace(verifier_offer, step_costs=())
    with pytest.raises(NoPlacement) as unplaced:
        plan(TINY, fleet_of(2000, make_card, unmeasured), Measurements())
    assert len(str(unplaced.value)) < HEADER_BYTES
    assert "and 56 more" in str(unplaced.value)
    several = [
        NodeView(
            make_card(f"{index:064}", replace(verifier_offer, model_id=f"{index:0256}")),
            Liveness.ALIVE,
        )
        for index in range(100)
    ]
    with pytest.raises(ModelNotFound) as missing:
        plan(TINY, several, Measurements())
    assert len(str(missing.value)) + len(missing.value.metadata["served"]) < HEADER_BYTES
    assert "and 92 more" in str(missing.value)
