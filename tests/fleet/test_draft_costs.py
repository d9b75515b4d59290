"""What drafts are taken to cost: a claim chooses nobody over what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.cost_model import step_seconds
from kakeya_fleet.fleet.placement.draft_costs import (
    LEAST_DRAFT_SECONDS,
    UNMEASURED_FACTOR,
    CostBasis,
    draft_costs,
)
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import Plan, PlanRequest
from kakeya_fleet.fleet.views.node_view import (
    ANY_MODEL,
    MeasuredAcceptance,
    MeasuredDrafts,
    Measurements,
    NodeView,
)

MakeCard = Callable[..., Card]
TINY = PlanRequest("tiny")
# The liar is the nearest: what it claims and its id would both win a tie.
WAYS = {("v", "liar"): 0.0003, ("v", "honest"): 0.0005, ("v", "newcomer"): 0.0005}
ACCEPTED = {("tiny", "drafter"): MeasuredAcceptance(0.7, 500, 0.6, 0.8, 9.0)}
HONEST_SECONDS = 0.003


@pytest.fixture
def drafter(verifier_offer: ModelOffer) -> Callable[[float], ModelOffer]:
    """drafter(seconds): a drafter that claims so much for a draft of any size."""

    def offer(seconds: float) -> ModelOffer:
        return replace(
            verifier_offer,
            model_id="drafter",
            role=Role.PROPOSER,
            kind=ModelKind.MASKED_DIFFUSION,
            step_costs=(StepCost(1, seconds), StepCost(15, seconds)),
        )

    return offer


Drafter = Callable[[float], ModelOffer]


def seen(**seconds: float) -> Measurements:
    """What v measured of drafts of 8 tokens, by node."""
    return Measurements(
        WAYS,
        ACCEPTED,
        draft_costs={
            ("v", node_id, "drafter"): MeasuredDrafts(
                ModelKind.MASKED_DIFFUSION, (StepCost(8, each),)
            )
            for node_id, each in seconds.items()
        },
    )


@pytest.fixture
def planned(make_card: MakeCard, verifier_offer: ModelOffer) -> Callable[..., Plan]:
    """planned(measured, node=offer, ...): of v's verifier and these proposers."""

    def make(measured: Measurements, **offers: ModelOffer) -> Plan:
        cards = [make_card("v", verifier_offer)]
        cards += [make_card(node_id, offer) for node_id, offer in offers.items()]
        return plan(TINY, [NodeView(card, Liveness.ALIVE) for card in cards], measured)

    return make


def proposer_of(made: Plan) -> str:
    return made.proposer.node_id if made.proposer is not None else ""


def tried_by(made: Plan) -> list[str]:
    return [trial.proposer.node_id for trial in made.trials]


def test_a_claim_of_nothing_is_not_preferred_over_what_was_measured(
    planned: Callable[..., Plan], drafter: Drafter
) -> None:
    made = planned(seen(honest=HONEST_SECONDS), liar=drafter(0.0), honest=drafter(0.002))
    assert proposer_of(made) == "honest"
    lost = next(each for each in made.rejections if each.proposer and "liar" in each.explanation)
    assert "a draft 0 us claimed and not measured, taken for 3.75 ms" in lost.explanation
    assert "a draft 3.00 ms measured, 2.00 ms claimed" in made.reasons[0]


def test_it_is_tried_on_the_stream_once_and_what_is_measured_then_counts(
    planned: Callable[..., Plan], drafter: Drafter
) -> None:
    offers = {"liar": drafter(0.0), "honest": drafter(0.002)}
    assert tried_by(planned(seen(honest=HONEST_SECONDS), **offers)) == ["liar"]
    slow = planned(seen(honest=HONEST_SECONDS, liar=0.05), **offers)
    assert (proposer_of(slow), tried_by(slow)) == ("honest", [])
    assert "50.00 ms measured" in " ".join(each.explanation for each in slow.rejections)


def test_of_many_that_claim_nothing_one_is_tried(
    planned: Callable[..., Plan], drafter: Drafter, make_card: MakeCard, verifier_offer: ModelOffer
) -> None:
    forged = {f"forged-{index:02}": drafter(0.0) for index in range(40)}
    measured = seen(honest=HONEST_SECONDS)
    ways = {**WAYS, **{("v", node_id): 0.0004 for node_id in forged}}
    made = planned(replace(measured, round_trips=ways), honest=drafter(HONEST_SECONDS), **forged)
    assert (proposer_of(made), len(made.trials)) == ("honest", 1)


def test_an_honest_newcomer_gets_sessions(planned: Callable[..., Plan], drafter: Drafter) -> None:
    """Where nobody was measured it begins; beside a measured one it is tried, and then leads."""
    alone = planned(seen(), newcomer=drafter(0.001))
    assert proposer_of(alone) == "newcomer"
    assert any("its own claim" in reason for reason in alone.reasons)
    offers = {"honest": drafter(HONEST_SECONDS), "newcomer": drafter(0.001)}
    beside = planned(seen(honest=HONEST_SECONDS), **offers)
    assert (proposer_of(beside), tried_by(beside)) == ("honest", ["newcomer"])
    measured = planned(seen(honest=HONEST_SECONDS, newcomer=0.0011), **offers)
    assert proposer_of(measured) == "newcomer"
    assert not any("its own claim" in reason for reason in measured.reasons)


def test_what_is_measured_is_worth_more_than_a_claim_of_the_same(
    planned: Callable[..., Plan], drafter: Drafter
) -> None:
    """Also where the claim's node is nearer."""
    offers = {"honest": drafter(HONEST_SECONDS), "liar": drafter(HONEST_SECONDS)}
    assert proposer_of(planned(seen(honest=HONEST_SECONDS), **offers)) == "honest"


def test_a_nodes_own_measurement_is_no_claim(drafter: Drafter) -> None:
    offer = drafter(0.0)
    own = draft_costs("v", "v", offer, seen(honest=1.0))
    assert (own.basis, own.expected) == (CostBasis.OWN, offer.step_costs)


def test_a_claim_costs_no_less_than_a_machine_can_do(drafter: Drafter) -> None:
    costs = draft_costs("v", "liar", drafter(0.0), Measurements())
    assert costs.basis is CostBasis.CLAIMED
    least = LEAST_DRAFT_SECONDS[ModelKind.MASKED_DIFFUSION]
    for count in range(1, 16):
        assert step_seconds(costs.expected, count) == step_seconds(costs.at_best, count) == least


def test_a_claim_is_compared_with_the_median_of_its_kind_and_of_this_verifier(
    drafter: Drafter,
) -> None:
    measured = seen(a=0.001, b=0.004, c=0.1)
    others = {
        ("elsewhere", "x", "drafter"): MeasuredDrafts(
            ModelKind.MASKED_DIFFUSION, (StepCost(8, 9.0),)
        ),
        ("v", "n", "ngram"): MeasuredDrafts(ModelKind.NGRAM, (StepCost(8, 1e-5),)),
    }
    measured = replace(measured, draft_costs={**measured.draft_costs, **others})
    costs = draft_costs("v", "liar", drafter(0.0), measured)
    assert step_seconds(costs.expected, 8) == pytest.approx(UNMEASURED_FACTOR * 0.004)
    # Nor is one that is shut out an example.
    apart = frozenset({("v", "b", "drafter"), ("v", "c", ANY_MODEL)})
    shut_out = replace(measured, open_breakers=apart)
    cheap = draft_costs("v", "liar", drafter(0.0), shut_out)
    assert step_seconds(cheap.expected, 8) == pytest.approx(UNMEASURED_FACTOR * 0.001)
    # A higher claim stands.
    dear = draft_costs("v", "liar", drafter(0.2), measured)
    assert step_seconds(dear.expected, 8) == pytest.approx(0.2)


def test_beyond_the_largest_measured_draft_only_claimed_increments_count(
    drafter: Drafter,
) -> None:
    measured = seen(honest=0.01)
    flat = draft_costs("v", "honest", drafter(0.0), measured)
    assert [step_seconds(flat.expected, count) for count in (1, 8, 15)] == [0.01] * 3
    rising = replace(drafter(0.0), step_costs=(StepCost(8, 0.02), StepCost(15, 0.05)))
    costs = draft_costs("v", "honest", rising, measured)
    assert step_seconds(costs.expected, 15) == pytest.approx(0.04)
    # One that claims less for more is not believed to be faster than it was seen.
    falling = replace(drafter(0.0), step_costs=(StepCost(8, 1.0), StepCost(15, 0.0)))
    assert step_seconds(draft_costs("v", "honest", falling, measured).expected, 15) == 0.01
