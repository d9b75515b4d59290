"""The sentences of a plan, with the numbers that decided."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.fleet.placement.cost_model import step_seconds
from kakeya_fleet.fleet.placement.draft_costs import CostBasis
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import PredictedPair, Server, hides_drafts
from kakeya_fleet.fleet.quantities import bytes_text, seconds_text
from kakeya_fleet.fleet.views.node_view import UNLIMITED_BYTES, NodeView

MOST_NAMED = 8
"""Nodes in one sentence."""


def pair_text(pair: PredictedPair) -> str:
    """The speed of a candidate and what it comes of."""
    if pair.proposer is None:
        return (
            f"{_served(pair.verifier)} alone: {pair.tokens_per_second:.1f} tokens a second, "
            f"{seconds_text(1.0 / pair.tokens_per_second)} a step."
        )
    acceptance = pair.acceptance
    origin = "measured" if acceptance.is_measured else "assumed, too little was measured"
    return (
        f"{_served(pair.verifier)} with {_served(pair.proposer)}: "
        f"{pair.tokens_per_second:.1f} tokens a second, "
        f"{pair.block_tokens:.2f} tokens a block in {seconds_text(pair.block_seconds)} "
        f"(blocks of {pair.block_size}, acceptance {acceptance.rate:.2f} {origin}, "
        f"{acceptance.low:.2f} to {acceptance.high:.2f} in four of five sessions: "
        f"{pair.tokens_per_second_low:.1f} to {pair.tokens_per_second_high:.1f}; "
        f"round trip {seconds_text(pair.round_trip_seconds)}{_drafts(pair)}"
        f"{_gain(pair)})."
    )


def withheld_reasons(request: PlanRequest, nodes: Sequence[NodeView]) -> tuple[str, ...]:
    """Whose archives a session may not use; of models each pairing has its own reason."""
    names = [view.card.name for view in nodes if view.withholds_archive]
    if request.kv_strategy is KvStrategy.SINK_WINDOW or request.without_archive or not names:
        return ()
    told = ", ".join(names[:MOST_NAMED]) + (" and others" if len(names) > MOST_NAMED else "")
    return (f"The fleet's keepers do not let {told} keep an archive for others.",)


def plan_reasons(
    request: PlanRequest, chosen: PredictedPair, kv_bytes: int, free_bytes: int
) -> tuple[str, ...]:
    """How the choice was made, the choice itself first."""
    reasons = [pair_text(chosen)]
    alone = chosen.alone_tokens_per_second
    if chosen.proposer is not None:
        ratio = chosen.tokens_per_second / alone
        step = seconds_text(1.0 / alone)
        reasons.append(
            f"The verifier alone: {alone:.1f} tokens a second, {step} a step; "
            f"the pair is {ratio:.2f} times as fast."
        )
        if not chosen.is_faster_than_alone:
            reasons.append(
                "The request names the proposer: it is used although it is "
                "predicted to be no faster than the verifier alone."
            )
        reasons.append(_proposer_text(chosen.verifier, chosen.proposer))
        reasons += _cost_reasons(chosen)
        if not chosen.is_exact:
            reasons.append(
                f"{_served(chosen.verifier)} is not exact: drafting can change tokens on that "
                "machine. The request names the proposer and so accepts that."
            )
        if request.block_size is not None and request.block_size > chosen.block_size:
            reasons.append(
                f"Blocks of {request.block_size} were asked for; the verifier's widest measured "
                f"step and the proposer's longest draft hold {chosen.block_size}."
            )
    elif request.without_proposer:
        reasons.append("The request wants the verifier alone.")
    else:
        reasons.append("No proposer is predicted to be faster than the verifier alone.")
    of_free = (
        ""
        if free_bytes >= UNLIMITED_BYTES
        else f" of {bytes_text(free_bytes)} free on {chosen.verifier.card.name}"
    )
    reasons.append(f"Keys and values take at most {bytes_text(kv_bytes)}{of_free}.")
    return tuple(reasons)


def trial_reasons(tried: Sequence[PredictedPair]) -> tuple[str, ...]:
    """Which proposers the session tries on its own stream; nothing when it tries none."""
    names = [
        f"{_served(pair.proposer)} (up to {pair.tokens_per_second_high:.1f} tokens a second at "
        f"acceptance {pair.acceptance.high:.2f})"
        for pair in tried
        if pair.proposer is not None
    ]
    if not names:
        return ()
    return (
        f"The session tries on its own stream what could be faster: {', '.join(names)}; "
        "it keeps what is.",
    )


def stand_in_reasons(pair: PredictedPair | None) -> tuple[str, ...]:
    """Who drafts when the chosen proposer cannot; nothing when nobody is there."""
    if pair is None or pair.proposer is None:
        return ()
    return (
        f"{_served(pair.proposer)} stands in: it drafts when the chosen one fails, and is asked "
        "too when that is late.",
    )


def _proposer_text(verifier: Server, proposer: Server) -> str:
    """What kind of proposer it is, and whether its drafts hide behind verifying."""
    offer = proposer.offer
    kind = offer.kind.value.replace("_", "-")
    if hides_drafts(verifier, proposer):
        return f"{offer.model_id} ({kind}) drafts the next block while this one is verified."
    if offer.drafts_ahead:
        return (
            f"{offer.model_id} ({kind}) computes with the verifier's processors: none of its "
            "drafts is taken to be hidden behind verifying."
        )
    return (
        f"{offer.model_id} ({kind}) drafts from the hidden states of the committed tokens, so that "
        "its drafts and their round trip are never hidden behind verifying."
    )


def _drafts(pair: PredictedPair) -> str:
    """What a draft is taken to cost where the card's figure is not the whole truth."""
    costs = pair.draft_costs
    if costs is None or costs.basis is CostBasis.OWN:
        return ""
    expected = seconds_text(step_seconds(costs.expected, pair.block_size))
    claimed = seconds_text(step_seconds(costs.claimed, pair.block_size))
    if costs.basis is CostBasis.MEASURED:
        return f"; a draft {expected} measured, {claimed} claimed"
    return f"; a draft {claimed} claimed and not measured, taken for {expected}"


def _gain(pair: PredictedPair) -> str:
    """What sessions were, which counts for more than what is added up."""
    if pair.measured_gain is None:
        return ""
    return f"; its latest sessions here were {pair.measured_gain:.2f} times as fast as alone"


def _cost_reasons(chosen: PredictedPair) -> tuple[str, ...]:
    """What a choice stands on that nobody here has measured."""
    if chosen.proposer is None or not chosen.is_claimed:
        return ()
    return (
        f"What drafts of {_served(chosen.proposer)} cost is its own claim, which no session of "
        f"{chosen.verifier.card.name} has measured: it counts for no less than others of its "
        "kind were measured to take.",
    )


def _served(server: Server) -> str:
    return f"{server.offer.model_id} on {server.card.name}"
