"""What a proposer's drafts are taken to cost: measured on the verifier's own streams, or claimed.

A card says what its owner likes, so that a claim of another node chooses nobody over what
was measured. For a draft of B tokens, in seconds without the way:

    own        a proposer of the verifier's node: its own measurement at load
    measured   c(B): medians of the drafts that came to this verifier, linear between sizes
               and constant below the first; above the last size L what the claim says that
               more tokens cost: c(L) + max(0, claim(B) - claim(L))
    claimed    max(claim(B), LEAST_DRAFT_SECONDS[kind],
                   UNMEASURED_FACTOR * median of c(B) over the measured ones of its kind
                                       that no breaker holds apart)

What it could be at best is the claim itself, above the least: so a session may try a
newcomer on its own stream, for a bounded number of tokens, and has measured it then.
Only what the verifier's own node measured counts: what others say of a third is a claim too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, StepCost
from kakeya_fleet.fleet.placement.cost_model import MAX_BLOCK_SIZE, step_seconds
from kakeya_fleet.fleet.views.node_view import Measurements

LEAST_DRAFT_SECONDS: Mapping[ModelKind, float] = {
    ModelKind.NGRAM: 1e-5,
    ModelKind.MASKED_DIFFUSION: 1e-4,
    ModelKind.AUTOREGRESSIVE: 1e-4,
    ModelKind.DFLASH: 1e-4,
}
"""No machine drafts in less: a look into a table, and one forward of some launches of kernels
that reads its weights once (100 MB at 1 TB/s)."""
UNMEASURED_FACTOR = 1.25
"""An equal claim is taken to be slower than what was measured by more than noise (medians of
16 drafts differ by a tenth): it costs an honest newcomer the first blocks of one session."""


class CostBasis(Enum):
    """Where the cost of drafts comes from."""

    OWN = "own"
    MEASURED = "measured"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Costs by drafted tokens: what is expected, what the card says, what is possible at best."""

    expected: Sequence[StepCost]
    claimed: Sequence[StepCost]
    at_best: Sequence[StepCost]
    basis: CostBasis


def draft_costs(
    verifier_node_id: str, proposer_node_id: str, offer: ModelOffer, measured: Measurements
) -> DraftCosts:
    """What drafts of `offer` cost the verifier's node. Its `step_costs` are not empty."""
    claimed = offer.step_costs
    if verifier_node_id == proposer_node_id:
        return DraftCosts(claimed, claimed, claimed, CostBasis.OWN)
    seen = measured.draft_costs.get((verifier_node_id, proposer_node_id, offer.model_id))
    if seen is not None:
        costs = _continued(seen.costs, claimed)
        return DraftCosts(costs, claimed, costs, CostBasis.MEASURED)
    others = [
        each.costs
        for (verifier, proposer, model), each in measured.draft_costs.items()
        if verifier == verifier_node_id
        and each.kind is offer.kind
        and not measured.are_held_apart(verifier, proposer, model)
    ]
    least = LEAST_DRAFT_SECONDS[offer.kind]
    counts = {1, MAX_BLOCK_SIZE} | {
        cost.token_count for costs in (claimed, *others) for cost in costs
    }
    at_best, expected = [], []
    for count in sorted(counts):
        possible = max(step_seconds(claimed, count), least)
        usual = statistics.median(step_seconds(costs, count) for costs in others) if others else 0.0
        at_best.append(StepCost(count, possible))
        expected.append(StepCost(count, max(possible, UNMEASURED_FACTOR * usual)))
    return DraftCosts(expected, claimed, at_best, CostBasis.CLAIMED)


def _continued(seen: Sequence[StepCost], claimed: Sequence[StepCost]) -> Sequence[StepCost]:
    """What was measured, up to the largest block that anybody plans."""
    last = seen[-1]
    claimed_by_then = step_seconds(claimed, last.token_count)
    counts = {MAX_BLOCK_SIZE, *(cost.token_count for cost in claimed)}
    return (
        *seen,
        *(
            StepCost(count, last.seconds + max(0.0, step_seconds(claimed, count) - claimed_by_then))
            for count in sorted(counts)
            if count > last.token_count
        ),
    )
