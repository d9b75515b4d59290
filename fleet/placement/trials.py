"""Which proposers a session should try on its own stream, and which one stands in for its own."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.fleet.placement.plan import PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import PredictedPair

# A session tries so many at most: each trial that fails costs some tokens' time.
MOST_TRIALS = 3


def worth_trying(
    request: PlanRequest, chosen: PredictedPair, others: Sequence[PredictedPair]
) -> tuple[PredictedPair, ...]:
    """Proposers for the chosen verifier, the most promising first, one a model.

    A proposer could be faster when the upper end of its acceptance predicts more than
    the lower end of the chosen one's does: a session measures what is between. Where
    several nodes have the model, the one predicted to be the fastest is tried, since
    acceptance is the model's; besides the chosen one's node one more of its model, which claims
    to be faster and was not measured. A request that names its proposer, or wants none,
    tries nothing.
    """
    if request.names_proposer or request.without_proposer:
        return ()
    tried: list[PredictedPair] = []
    newcomer: PredictedPair | None = None
    models = {chosen.proposer.offer.model_id} if chosen.proposer is not None else set()
    for pair in sorted(others, key=_promise):
        if pair.proposer is None or pair.verifier.card.node_id != chosen.verifier.card.node_id:
            continue
        model_id = pair.proposer.offer.model_id
        could_win = pair.tokens_per_second_high > chosen.tokens_per_second_low
        if could_win and model_id not in models:
            models.add(model_id)
            tried.append(pair)
        elif newcomer is None and _is_newcomer(pair, chosen):
            newcomer = pair
            tried.append(pair)
    return tuple(tried[:MOST_TRIALS])


def standing_in(
    request: PlanRequest,
    chosen: PredictedPair,
    others: Sequence[PredictedPair],
    tried: Sequence[PredictedPair],
) -> PredictedPair | None:
    """Who drafts when the chosen proposer cannot, and is asked too when it is late.

    The fastest on another node that is not tried already: as a rule the same model elsewhere,
    of which a trial would find out nothing. None where the request names its proposer, or nobody
    could be faster than the verifier alone.
    """
    if request.names_proposer or chosen.proposer is None:
        return None
    able = [
        pair
        for pair in others
        if pair.proposer is not None
        and pair not in tried
        and pair.proposer.card.node_id != chosen.proposer.card.node_id
        and pair.verifier.card.node_id == chosen.verifier.card.node_id
        and pair.tokens_per_second_high > pair.alone_tokens_per_second
    ]
    return min(able, key=lambda pair: pair.preference, default=None)


def _is_newcomer(pair: PredictedPair, chosen: PredictedPair) -> bool:
    """Whether it claims to draft as the measured choice does, and faster."""
    if pair.proposer is None or chosen.proposer is None:
        return False
    return (
        pair.proposer.offer.model_id == chosen.proposer.offer.model_id
        and pair.is_claimed
        and not chosen.is_claimed
        and pair.claimed_tokens_per_second > chosen.tokens_per_second
    )


def _promise(pair: PredictedPair) -> tuple[float, tuple[float, bool, str, str, str]]:
    return -pair.tokens_per_second_high, pair.preference
