"""A verifier with or without a proposer, and the speed that is predicted for it."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.acceptance_prior import acceptance_of
from fleet.card import Card, ModelOffer
from fleet.cost_model import PairCost, alone_tokens_per_second, expected_tokens
from fleet.node_view import Measurements
from fleet.plan import PlanRequest


@dataclass(frozen=True, slots=True)
class Server:
    """One model that one node serves."""

    card: Card
    offer: ModelOffer


@dataclass(frozen=True, slots=True)
class PredictedPair:
    """A candidate that could serve; all of the proposer's figures are 0 when alone.

    Speeds are in tokens a second, `block_seconds` is the expected duration of a
    block, `block_tokens` what it commits.
    """

    verifier: Server
    proposer: Server | None
    tokens_per_second: float
    alone_tokens_per_second: float
    block_size: int = 0
    block_seconds: float = 0.0
    block_tokens: float = 0.0
    round_trip_seconds: float = 0.0
    acceptance_rate: float = 0.0
    acceptance_measured: bool = False

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
    return PredictedPair(verifier, None, speed, speed)


def predict(
    request: PlanRequest, verifier: Server, proposer: Server, measured: Measurements
) -> PredictedPair:
    """The pair at its best block size, or at the requested one as far as it fits."""
    is_local = verifier.card.node_id == proposer.card.node_id
    way = (verifier.card.node_id, proposer.card.node_id)
    models = (verifier.offer.model_id, proposer.offer.model_id)
    acceptance, is_measured = acceptance_of(proposer.offer.kind, measured.acceptances.get(models))
    cost = PairCost(
        verifier_costs=verifier.offer.step_costs,
        proposer_costs=proposer.offer.step_costs,
        round_trip_seconds=0.0 if is_local else max(0.0, measured.round_trips[way]),
        acceptance=acceptance,
        drafts_ahead=proposer.offer.drafts_ahead,
        most_drafted=proposer.offer.block_size,
    )
    if request.block_size is None:
        block_size = cost.best_block_size()
    else:
        block_size = min(request.block_size, cost.widest_block())
    return PredictedPair(
        verifier=verifier,
        proposer=proposer,
        tokens_per_second=cost.tokens_per_second(block_size),
        alone_tokens_per_second=alone_tokens_per_second(verifier.offer.step_costs),
        block_size=block_size,
        block_seconds=cost.block_seconds(block_size),
        block_tokens=expected_tokens(acceptance, block_size),
        round_trip_seconds=cost.round_trip_seconds,
        acceptance_rate=acceptance,
        acceptance_measured=is_measured,
    )
