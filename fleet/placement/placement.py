"""Which verifier and which proposer serve a session, and why.

The candidates are every verifier of the requested model, alone and with every
proposer that any node offers. A verifier that cannot take the session is one
candidate, without its pairings. Each candidate is in the plan exactly once, up to the bounds of
`fleet.placement.candidates`: chosen, or rejected with the numbers that decided. The fastest
wins; of equals the verifier alone, then the lower node ids. A proposer that the request names
is used although it is predicted to be slower than the verifier alone, and
although the verifier is not exact; no other proposer drafts for such a verifier.
Speeds of a `restored` request are those with its archives. What it leaves open of
keys and values is chosen for each verifier before. What is predicted chooses
who begins; proposers that could be faster are named, for the session to try.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import ModelNotFound, NoPlacement
from kakeya_fleet.fleet.placement.archive_placement import (
    ArchivePlacement,
    place_archives,
    planned_tokens,
)
from kakeya_fleet.fleet.placement.archive_reasons import full_reason
from kakeya_fleet.fleet.placement.candidates import (
    Served,
    listed,
    omission_reasons,
    promising,
    told,
)
from kakeya_fleet.fleet.placement.kv_choice import ChosenStrategy, choose_kv_strategy
from kakeya_fleet.fleet.placement.kv_memory import kv_bytes
from kakeya_fleet.fleet.placement.pairing_rules import (
    Objection,
    proposer_objection,
    verifier_objection,
)
from kakeya_fleet.fleet.placement.plan import (
    KvStrategy,
    Placement,
    Plan,
    PlanRequest,
    Rejection,
    RejectionReason,
    Trial,
)
from kakeya_fleet.fleet.placement.predicted_pair import (
    PredictedPair,
    Server,
    predict,
    predict_alone,
)
from kakeya_fleet.fleet.placement.reasons import (
    pair_text,
    plan_reasons,
    stand_in_reasons,
    trial_reasons,
    withheld_reasons,
)
from kakeya_fleet.fleet.placement.transport import transport_of, transport_reasons
from kakeya_fleet.fleet.placement.trials import standing_in, worth_trying
from kakeya_fleet.fleet.views.node_view import MeasuredAcceptance, Measurements, NodeView

__all__ = ["MeasuredAcceptance", "Measurements", "NodeView", "plan"]


def plan(request: PlanRequest, nodes: Sequence[NodeView], measured: Measurements) -> Plan:
    """The pair with the highest predicted speed; the order of `nodes` plays no part.

    Raises `ModelNotFound` when no live node serves the verifier, or none the
    proposer that the request names, and `NoPlacement` when nodes do but none
    can take the session. Raises `ValueError` for a block size below 1.
    """
    if request.block_size is not None and request.block_size < 1:
        raise ValueError(f"block size {request.block_size} is below 1")
    ordered = sorted(nodes, key=lambda view: view.card.node_id)
    _require_served(request.verifier_model, Role.VERIFIER, ordered)
    if request.proposer_model and not request.without_proposer:
        _require_served(request.proposer_model, Role.PROPOSER, ordered)
    fit: list[_Candidate] = []
    rejections: list[Rejection] = []
    verifiers = [
        (view, server)
        for view, server in _servers(ordered, Role.VERIFIER)
        if server.offer.model_id == request.verifier_model
    ]
    proposers = _servers(ordered, Role.PROPOSER)
    looked_at = promising(proposers, request.proposer_node_id, measured)
    for view, server in promising(verifiers, request.verifier_node_id, measured):
        objection = verifier_objection(request, view, server.offer, measured)
        if objection is not None:
            rejections.append(_rejection(server, None, objection))
            continue
        kept = _kv_choice(request, server, ordered, measured)
        archives = place_archives(
            replace(request, kv_strategy=kept.strategy), server, ordered, measured
        )
        pairs, unfit = _pairs(request, archives.verifier, looked_at, measured)
        fit += [_Candidate(pair, server, archives, kept) for pair in pairs]
        rejections += unfit
    made = _decide(request, fit, rejections, measured)
    omitted = omission_reasons(
        request,
        verifier_count=len(verifiers),
        proposer_count=len(proposers),
        rejection_count=len(made.rejections),
    )
    withheld = withheld_reasons(request, ordered)
    return replace(
        made, reasons=(*made.reasons, *withheld, *omitted), rejections=told(made.rejections)
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pair that could serve, its archives, and the verifier as it is without them.

    `kept` is how it would keep keys and values.
    """

    pair: PredictedPair
    verifier: Server
    archives: ArchivePlacement
    kept: ChosenStrategy


def _kv_choice(
    request: PlanRequest, verifier: Server, nodes: Sequence[NodeView], measured: Measurements
) -> ChosenStrategy:
    """What the request says, which needs no reason, or the choice that it leaves open."""
    if request.kv_strategy is not None:
        return ChosenStrategy(request.kv_strategy, "")
    return choose_kv_strategy(request, verifier, nodes, measured)


def _pairs(
    request: PlanRequest, verifier: Server, proposers: Sequence[Served], measured: Measurements
) -> tuple[list[PredictedPair], list[Rejection]]:
    """The verifier alone and with each proposer: what could serve, and what not."""
    alone = predict_alone(verifier)
    fit: list[PredictedPair] = []
    rejections: list[Rejection] = []
    if request.names_proposer:
        objection = (RejectionReason.NOT_REQUESTED, "The request names a proposer.")
        rejections.append(
            _rejection(verifier, None, objection, alone.tokens_per_second),
        )
    else:
        fit.append(alone)
    for view, proposer in proposers:
        rule = proposer_objection(
            request, (verifier.card, verifier.offer), view, proposer.offer, measured
        )
        if rule is not None:
            rejections.append(_rejection(verifier, proposer, rule))
        else:
            fit.append(predict(request, verifier, proposer, measured))
    return fit, rejections


def _decide(
    request: PlanRequest,
    fit: list[_Candidate],
    rejections: list[Rejection],
    measured: Measurements,
) -> Plan:
    if not fit:
        raise _no_placement(request, rejections)
    # The verifier alone is among them unless a proposer was named: what wins is no slower.
    best = min(fit, key=lambda candidate: candidate.pair.preference)
    chosen, archives = best.pair, best.archives
    others = [candidate.pair for candidate in fit if candidate is not best]
    rejections = [*rejections, *(_slower(pair, chosen) for pair in others)]
    needed = kv_bytes(best.verifier.offer, request)
    free = _free_bytes(best.verifier, measured)
    tried = worth_trying(request, chosen, others)
    stand_in = standing_in(request, chosen, others, tried)
    kept: tuple[str, ...] = (best.kept.reason,) if best.kept.reason else ()
    if request.packing is not None and best.kept.strategy is KvStrategy.FULL:
        kept += (
            request.packing.reason(
                best.verifier.offer.dtype, full_window=request.full_window_tokens
            ),
        )
    if request.packing_when_short is not None:
        kept += (request.packing_when_short.reason_when_short(best.verifier.offer.dtype),)
    reasons = (
        *plan_reasons(request, chosen, needed, free),
        *kept,
        *trial_reasons(tried),
        *stand_in_reasons(stand_in),
        *transport_reasons(chosen),
        *archives.reasons,
    )
    if archives.archive is not None and planned_tokens(request, best.verifier):
        reasons += (_full_reason(request, best, measured),)
    return Plan(
        verifier=_placement(chosen.verifier),
        proposer=_placement(chosen.proposer) if chosen.proposer else None,
        transport=transport_of(chosen),
        block_size=chosen.block_size,
        predicted_tokens_per_second=chosen.tokens_per_second,
        predicted_alone_tokens_per_second=chosen.alone_tokens_per_second,
        round_trip_seconds=chosen.round_trip_seconds,
        acceptance_rate=chosen.acceptance.rate,
        acceptance_measured=chosen.acceptance.is_measured,
        kv_bytes=needed,
        reasons=reasons,
        rejections=tuple(rejections),
        exact=chosen.is_exact,
        archive=archives.archive,
        archives=archives.ranges,
        acceptance_rate_low=chosen.acceptance.low,
        acceptance_rate_high=chosen.acceptance.high,
        predicted_tokens_per_second_low=chosen.tokens_per_second_low,
        predicted_tokens_per_second_high=chosen.tokens_per_second_high,
        trials=tuple(trial for trial in map(_trial, tried) if trial is not None),
        stand_in=_trial(stand_in),
        kv_strategy=best.kept.strategy,
    )


def _full_reason(request: PlanRequest, best: _Candidate, measured: Measurements) -> str:
    """What the same pair would take and do with full attention, as packed as it is now."""
    verifier, pair = best.verifier, best.pair
    full = replace(request, kv_strategy=KvStrategy.FULL)
    if pair.proposer is None:
        speed = predict_alone(verifier).tokens_per_second
    else:
        speed = predict(request, verifier, pair.proposer, measured).tokens_per_second
    return full_reason(
        verifier,
        planned_tokens(request, verifier),
        kv_bytes(verifier.offer, full),
        _free_bytes(verifier, measured),
        times_as_fast=speed / pair.tokens_per_second if best.archives.is_measured else None,
    )


def _free_bytes(verifier: Server, measured: Measurements) -> int:
    return measured.free_bytes.get(verifier.card.node_id, verifier.card.memory_free_bytes)


def _slower(pair: PredictedPair, chosen: PredictedPair) -> Rejection:
    """Why a candidate that could serve was not chosen."""
    if pair.proposer is not None and not pair.is_faster_than_alone:
        reason = RejectionReason.SLOWER_THAN_ALONE
        text = f"{pair_text(pair)} The verifier alone: {pair.alone_tokens_per_second:.1f}."
    else:
        reason = RejectionReason.SLOWER_THAN_CHOSEN
        text = f"{pair_text(pair)} The chosen: {chosen.tokens_per_second:.1f}."
    return _rejection(pair.verifier, pair.proposer, (reason, text), pair.tokens_per_second)


def _rejection(
    verifier: Server, proposer: Server | None, objection: Objection, speed: float = 0.0
) -> Rejection:
    reason, explanation = objection
    return Rejection(
        verifier=_placement(verifier),
        proposer=_placement(proposer) if proposer else None,
        reason=reason,
        explanation=explanation,
        predicted_tokens_per_second=speed,
    )


def _placement(server: Server) -> Placement:
    card = server.card
    address = card.addresses[0] if card.addresses else ""
    return Placement(card.node_id, card.name, address, server.offer.model_id)


def _trial(pair: PredictedPair | None) -> Trial | None:
    """None where there is no proposer."""
    if pair is None or pair.proposer is None:
        return None
    return Trial(_placement(pair.proposer), pair.tokens_per_second_high)


def _servers(nodes: Iterable[NodeView], role: Role) -> list[Served]:
    """Those that may serve, and those that would and may not."""
    return [
        (view, Server(view.card, offer))
        for view in nodes
        for offer in (*view.card.models, *view.withheld)
        if offer.role is role
    ]


def _require_served(model_id: str, role: Role, nodes: Sequence[NodeView]) -> None:
    """Raises `ModelNotFound`, with the models that are served in the role."""
    served = {
        server.offer.model_id
        for view, server in _servers(nodes, role)
        if not view.liveness.is_tombstone
    }
    if model_id not in served:
        others = listed(sorted(served), ", ") or "none"
        raise ModelNotFound(
            f"no live node serves {role.value} {model_id!r}; served: {others}",
            model_id=model_id,
            role=role.value,
            served=others,
        )


def _no_placement(request: PlanRequest, rejections: Sequence[Rejection]) -> NoPlacement:
    """The error that lists why no candidate could take the session."""
    sentences = (
        f"{rejection.verifier.node_name}"
        f"{' with ' + rejection.proposer.node_name if rejection.proposer else ''}: "
        f"{rejection.explanation}"
        for rejection in rejections
        if rejection.proposer is not None or rejection.reason is not RejectionReason.NOT_REQUESTED
    )
    reasons = listed(sentences, "; ")
    return NoPlacement(
        f"no node can take a session of {request.verifier_model!r}: "
        f"{reasons or 'the nodes that the request names serve no such model'}",
        verifier_model=request.verifier_model,
        reasons=",".join(sorted({rejection.reason.value for rejection in rejections})),
    )
