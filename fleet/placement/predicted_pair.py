"""A verifier with or without a proposer, and the speed that is predicted for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.card import PROCESSOR, Card, ModelOffer
from kakeya_fleet.fleet.placement.acceptance_prior import (
    Acceptance,
    acceptance_of,
    has_same_weights,
)
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


def hides_drafts(verifier: Server, proposer: Server) -> bool:
    """Whether the next draft is made while a block is verified, and neither takes longer by it.

    On one machine without an accelerator both have the same processors, and the same memory.
    """
    one, other = verifier.card, proposer.card
    is_one_host = bool(one.host_id) and one.host_id == other.host_id
    are_processors = one.accelerator.kind == other.accelerator.kind == PROCESSOR
    return proposer.offer.drafts_ahead and not (is_one_host and are_processors)


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
    measured_gain: float | None = None
    """How many times as fast as alone sessions of the verifier's node were; None for unknown."""

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
    acceptance = acceptance_of(
        proposer.offer.kind,
        measured.acceptances.get(models),
        same_weights=has_same_weights(verifier.offer.weights_digest, proposer.offer.weights_digest),
    )
    drafts = draft_costs(*way, proposer.offer, measured)
    cost = PairCost(
        verifier_costs=verifier.offer.step_costs,
        proposer_costs=drafts.expected,
        round_trip_seconds=0.0 if is_local else max(0.0, measured.round_trips[way]),
        acceptance=acceptance.rate,
        drafts_ahead=hides_drafts(verifier, proposer),
        most_drafted=proposer.offer.block_size,
    )
    block_size = _block_size(request, cost)
    low = replace(cost, acceptance=acceptance.low)
    claimed = replace(cost, proposer_costs=drafts.at_best)
    high = replace(claimed, acceptance=acceptance.high)
    alone = alone_tokens_per_second(verifier.offer.step_costs)
    # Sessions choose their block sizes: with another that is asked for the pair is another.
    gain = None if request.block_size else measured.gains.get((_named(verifier), _named(proposer)))
    speed = cost.tokens_per_second(block_size) if gain is None else alone * gain
    return PredictedPair(
        verifier=verifier,
        proposer=proposer,
        tokens_per_second=speed,
        alone_tokens_per_second=alone,
        block_size=block_size,
        block_seconds=cost.block_seconds(block_size),
        block_tokens=expected_tokens(acceptance.rate, block_size),
        round_trip_seconds=cost.round_trip_seconds,
        acceptance=acceptance,
        tokens_per_second_low=min(speed, low.tokens_per_second(_block_size(request, low))),
        tokens_per_second_high=max(speed, high.tokens_per_second(_block_size(request, high))),
        draft_costs=drafts,
        claimed_tokens_per_second=claimed.tokens_per_second(_block_size(request, claimed)),
        measured_gain=gain,
    )


def _named(server: Server) -> tuple[str, str]:
    """Node and model."""
    return server.card.node_id, server.offer.model_id


def _block_size(request: PlanRequest, cost: PairCost) -> int:
    """The requested one as far as it fits, else the best: a session measures its way there."""
    if request.block_size is None:
        return cost.best_block_size()
    return min(request.block_size, cost.widest_block())
