"""A verifier with or without a proposer, and the speed that is predicted for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.card import Card, ModelOffer
from kakeya_fleet.fleet.placement.acceptance_prior import Acceptance, acceptance_of
from kakeya_fleet.fleet.placement.cost_model import (
    PairCost,
    alone_tokens_per_second,
    expected_tokens,
)
from kakeya_fleet.fleet.placement.draft_costs import CostBasis, DraftCosts, draft_costs
from kakeya_fleet.fleet.placement.plan import PlanRequest
from kakeya_fleet.fleet.views.node_view import Measurements

NO_ACCEPTANCE = Acceptance(0.0, 0.0, 0.0)
"""That of a verifier that decodes alone."""


@dataclass(frozen=True, slots=True)
class Server:
    """One model that one node serves."""

    card: Card
    offer: ModelOffer


@dataclass(frozen=True, slots=True)
class PredictedPair:
    """A candidate that could serve; all of the proposer's figures are 0 when alone.

    Speeds are in tokens a second, the low and the high one at the ends of the range of
    the acceptance, the high and the claimed one with drafts that cost what they do at best;
    `block_seconds` is the expected duration of a block, `block_tokens` what it commits.
    """

    verifier: Server
    proposer: Server | None
    tokens_per_second: float
    alone_tokens_per_second: float
    block_size: int = 0
    block_seconds: float = 0.0
    block_tokens: float = 0.0
    round_trip_seconds: float = 0.0
    acceptance: Acceptance = NO_ACCEPTANCE
    tokens_per_second_low: float = 0.0
    tokens_per_second_high: float = 0.0
    draft_costs: DraftCosts | None = None
    claimed_tokens_per_second: float = 0.0

    @property
    def is_claimed(self) -> bool:
        """Whether what the proposer's drafts cost was not measured by the verifier's node."""
        return self.draft_costs is not None and self.draft_costs.basis is CostBasis.CLAIMED

    @property
    def is_faster_than_alone(self) -> bool:
        """Whether drafting is predicted to be worth it; false when alone."""
        return self.tokens_per_second > self.alone_tokens_per_second

    @property
    def is_exact(self) -> bool:
        """Whether drafting cannot change a token; true when alone."""
        return self.proposer is None or self.verifier.offer.exact

    @property
    def preference(self) -> tuple[float, bool, str, str, str]:
        """Sorts the best first: speed, then alone, then node and model ids."""
        proposer = self.proposer
        return (
            -self.tokens_per_second,
            proposer is not None,
            self.verifier.card.node_id,
            proposer.card.node_id if proposer else "",
            proposer.offer.model_id if proposer else "",
        )


def predict_alone(verifier: Server) -> PredictedPair:
    """The verifier without drafts."""
    speed = alone_tokens_per_second(verifier.offer.step_costs)
    return PredictedPair(
        verifier, None, speed, speed, tokens_per_second_low=speed, tokens_per_second_high=speed
    )


def predict(
    request: PlanRequest, verifier: Server, proposer: Server, measured: Measurements
) -> PredictedPair:
    """The pair at its best block size, or at the requested one as far as it fits."""
    is_local = verifier.card.node_id == proposer.card.node_id
    way = (verifier.card.node_id, proposer.card.node_id)
    models = (verifier.offer.model_id, proposer.offer.model_id)
    acceptance = acceptance_of(proposer.offer.kind, measured.acceptances.get(models))
    drafts = draft_costs(*way, proposer.offer, measured)
    cost = PairCost(
        verifier_costs=verifier.offer.step_costs,
        proposer_costs=drafts.expected,
        round_trip_seconds=0.0 if is_local else max(0.0, measured.round_trips[way]),
        acceptance=acceptance.rate,
        drafts_ahead=proposer.offer.drafts_ahead,
        most_drafted=proposer.offer.block_size,
    )
    block_size = _block_size(request, cost)
    low = replace(cost, acceptance=acceptance.low)
    claimed = replace(cost, proposer_costs=drafts.at_best)
    high = replace(claimed, acceptance=acceptance.high)
    return PredictedPair(
        verifier=verifier,
        proposer=proposer,
        tokens_per_second=cost.tokens_per_second(block_size),
        alone_tokens_per_second=alone_tokens_per_second(verifier.offer.step_costs),
        block_size=block_size,
        block_seconds=cost.block_seconds(block_size),
        block_tokens=expected_tokens(acceptance.rate, block_size),
        round_trip_seconds=cost.round_trip_seconds,
        acceptance=acceptance,
        tokens_per_second_low=low.tokens_per_second(_block_size(request, low)),
        tokens_per_second_high=high.tokens_per_second(_block_size(request, high)),
        draft_costs=drafts,
        claimed_tokens_per_second=claimed.tokens_per_second(_block_size(request, claimed)),
    )


def _block_size(request: PlanRequest, cost: PairCost) -> int:
    """The requested one as far as it fits, else the best: a session measures its way there."""
    if request.block_size is None:
        return cost.best_block_size()
    return min(request.block_size, cost.widest_block())
