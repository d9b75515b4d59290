"""What a plan says of the road of tensors, and of what a session will try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import Plan, PlanRequest, Transport
from kakeya_fleet.fleet.views.node_view import MeasuredAcceptance, Measurements, NodeView

MakeCard = Callable[..., Card]
TINY = PlanRequest("tiny")
WAYS = {("a", other): 0.0005 for other in "bcd"}


@pytest.fixture
def dflash(verifier_offer: ModelOffer, ngram_offer: ModelOffer) -> ModelOffer:
    """A drafter conditioned on the verifier, whose draft costs as much as a step."""
    return replace(
        ngram_offer,
        model_id="drafter",
        kind=ModelKind.DFLASH,
        tokenizer_digest=verifier_offer.tokenizer_digest,
        step_costs=(StepCost(1, 0.005),),
        feature_width=64,
        encoder_digest="e" * 64,
        tapped_layers=(1,),
        block_size=7,
    )


def planned(cards: list[Card], acceptances: object = None, request: PlanRequest = TINY) -> Plan:
    nodes = [NodeView(card, Liveness.ALIVE) for card in cards]
    return plan(request, nodes, Measurements(WAYS, acceptances or {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ring_of_proposer", "address_of_proposer", "transport", "words"),
    [
        ("10.0.0.2", "10.0.0.2:7000", Transport.RING, "the ring will be tried"),
        ("", "10.0.0.2:7000", Transport.GRPC, "gRPC: name-b offers no ring"),
        ("10.0.0.1", "10.0.0.1:7001", Transport.LOCAL, "shared memory will be tried"),
    ],
)
def test_tensors_take_the_best_road_that_both_cards_offer(
    make_card: MakeCard,
    verifier_offer: ModelOffer,
    dflash: ModelOffer,
    ring_of_proposer: str,
    address_of_proposer: str,
    transport: Transport,
    words: str,
) -> None:
    verifier = replace(
        make_card("a", verifier_offer), ring_address="10.0.0.1", addresses=("10.0.0.1:7000",)
    )
    proposer = replace(
        make_card("b", dflash), ring_address=ring_of_proposer, addresses=(address_of_proposer,)
    )
    made = planned([verifier, proposer])
    assert made.transport is transport
    assert [reason for reason in made.reasons if words in reason]


def test_one_machine_is_told_by_its_id_first(
    make_card: MakeCard, verifier_offer: ModelOffer, dflash: ModelOffer
) -> None:
    """Two addresses of one host, and one address of two that a router stands for."""
    for addresses, hosts, transport in (
        (("10.0.0.1:7000", "10.0.0.2:7000"), ("h", "h"), Transport.LOCAL),
        (("10.0.0.1:7000", "10.0.0.1:7001"), ("h", "other"), Transport.RING),
    ):
        cards = [
            replace(make_card(name, offer), ring_address=name, addresses=(address,), host_id=host)
            for name, offer, address, host in zip(
                "ab", (verifier_offer, dflash), addresses, hosts, strict=True
            )
        ]
        assert planned(cards).transport is transport


def test_a_ring_that_stays_on_loopback_is_planned_between_no_hosts(
    make_card: MakeCard, verifier_offer: ModelOffer, dflash: ModelOffer
) -> None:
    """As nodes of a fleet with an authority say of it; on one host shared memory is first."""
    for hosts, transport, words in (
        (("h", "other"), Transport.GRPC, "rings stay within their hosts"),
        (("h", "h"), Transport.LOCAL, "shared memory will be tried"),
    ):
        cards = [
            replace(make_card(name, offer), ring_address="127.0.0.1:7000", host_id=host)
            for name, offer, host in zip("ab", (verifier_offer, dflash), hosts, strict=True)
        ]
        made = planned(cards)
        assert made.transport is transport
        assert [reason for reason in made.reasons if words in reason]


def test_drafts_are_ids_and_take_no_ring(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    cards = [
        replace(make_card(name, offer), ring_address=f"10.0.0.{name}")
        for name, offer in (("a", verifier_offer), ("b", ngram_offer))
    ]
    made = planned(cards)
    assert made.transport is Transport.GRPC
    assert not any("ring" in reason for reason in made.reasons)


def test_the_same_drafter_on_another_node_stands_in_and_is_not_tried(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    cards = [make_card("a", verifier_offer), *(make_card(name, ngram_offer) for name in "bcd")]
    made = planned(cards)
    assert made.proposer is not None
    assert made.stand_in is not None
    assert made.proposer.node_id == "b"
    assert made.stand_in.proposer.node_id == "c"
    assert not made.trials
    assert [reason for reason in made.reasons if "name-c stands in" in reason]


def test_nobody_stands_in_for_a_proposer_that_is_named_or_has_its_node_alone(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    cards = [make_card("a", verifier_offer), make_card("b", ngram_offer)]
    assert planned(cards).stand_in is None
    cards.append(make_card("c", ngram_offer))
    assert planned(cards, request=replace(TINY, proposer_node_id="b")).stand_in is None
    assert planned(cards, request=replace(TINY, without_proposer=True)).stand_in is None


def test_what_is_slower_as_assumed_and_faster_at_best_is_tried(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    """Wide steps that cost much: at 0.40 lookup loses, copied text is another matter."""
    dear = replace(verifier_offer, step_costs=(StepCost(1, 0.01), StepCost(2, 0.02)))
    dear = replace(dear, step_costs=(*dear.step_costs, StepCost(16, 0.03)))
    cards = [make_card("a", dear), make_card("b", ngram_offer), make_card("c", ngram_offer)]
    made = planned(cards)
    assert made.proposer is None
    # One node of the model is enough: acceptance is the model's.
    assert [trial.proposer.node_id for trial in made.trials] == ["b"]
    assert made.trials[0].predicted_tokens_per_second_high > made.predicted_tokens_per_second
    assert any("tries" in reason and "acceptance 0.90" in reason for reason in made.reasons)
    # Nine sessions in which it found nothing: not even at best.
    poor = {("tiny", "ngram"): MeasuredAcceptance(0.05, 999, 0.0, 0.1, 9.0)}
    assert planned(cards, poor).trials == ()
    for request in (replace(TINY, without_proposer=True), replace(TINY, proposer_model="ngram")):
        assert planned(cards, request=request).trials == ()


def test_a_range_surrounds_the_prediction(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    cards = [make_card("a", verifier_offer), make_card("b", ngram_offer)]
    measured = {("tiny", "ngram"): MeasuredAcceptance(0.5, 999, 0.3, 0.8, 9.0)}
    made = planned(cards, measured)
    assert (made.acceptance_rate_low, made.acceptance_rate_high) == (0.3, 0.8)
    low, high = made.predicted_tokens_per_second_low, made.predicted_tokens_per_second_high
    assert low < made.predicted_tokens_per_second < high
    alone = planned(cards[:1])
    assert (alone.acceptance_rate_low, alone.acceptance_rate_high) == (0.0, 0.0)
    assert alone.predicted_tokens_per_second_low == alone.predicted_tokens_per_second
