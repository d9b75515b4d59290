"""Why a verifier cannot take a session, or a proposer not draft for it.

Each rule gives its reason and one sentence with the numbers that decided, or
None when it has nothing against the candidate.
"""

from __future__ import annotations

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN, Card, ModelKind, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.kv_memory import opening_bytes
from kakeya_fleet.fleet.placement.plan import PlanRequest, RejectionReason
from kakeya_fleet.fleet.quantities import bytes_text
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView

Objection = tuple[RejectionReason, str]


def verifier_objection(
    request: PlanRequest, view: NodeView, offer: ModelOffer, measured: Measurements
) -> Objection | None:
    """Why the verifier cannot take the session at all."""
    card = view.card
    if offer in view.withheld:
        return _not_allowed(card, offer)
    if request.verifier_node_id not in ("", card.node_id):
        asked = request.verifier_node_id[:12]
        return RejectionReason.NOT_REQUESTED, f"The request names verifier node {asked}."
    if view.liveness is not Liveness.ALIVE:
        return RejectionReason.NOT_ALIVE, f"{card.name} is {view.liveness.name.lower()}."
    if card.protocol_min > PROTOCOL_MAX or card.protocol_max < PROTOCOL_MIN:
        return RejectionReason.PROTOCOL_SKEW, (
            f"{card.name} speaks protocol {card.protocol_min} to {card.protocol_max}, "
            f"this fleet {PROTOCOL_MIN} to {PROTOCOL_MAX}."
        )
    too_long = _context_objection(request, offer)
    if too_long is not None:
        return too_long
    needed = opening_bytes(offer, request)
    free = measured.free_bytes.get(card.node_id, card.memory_free_bytes)
    if needed > free:
        return RejectionReason.NOT_ENOUGH_MEMORY, (
            f"The session's keys and values take {bytes_text(needed)}, "
            f"{card.name} has {bytes_text(free)} free."
        )
    if not offer.step_costs:
        return RejectionReason.NOT_MEASURED, (
            f"{card.name} has not measured a step of {offer.model_id}."
        )
    return None


def proposer_objection(
    request: PlanRequest,
    verifier: tuple[Card, ModelOffer],
    view: NodeView,
    offer: ModelOffer,
    measured: Measurements,
) -> Objection | None:
    """Why the proposer cannot draft for the verifier."""
    verifier_card, verifier_offer = verifier
    card = view.card
    not_asked = _request_objection(request, card, offer)
    if not_asked is not None:
        return not_asked
    if offer in view.withheld:
        return _not_allowed(card, offer)
    # A suspect may be alive, and one that is not costs a session's speed at most: who names it
    # is not refused for what may be over in a moment.
    is_named = request.proposer_node_id == card.node_id
    if view.liveness is not Liveness.ALIVE and not (is_named and view.liveness is Liveness.SUSPECT):
        return RejectionReason.NOT_ALIVE, f"{card.name} is {view.liveness.name.lower()}."
    if (
        card.protocol_min > verifier_card.protocol_max
        or card.protocol_max < verifier_card.protocol_min
    ):
        return RejectionReason.PROTOCOL_SKEW, (
            f"{card.name} speaks protocol {card.protocol_min} to {card.protocol_max}, "
            f"{verifier_card.name} {verifier_card.protocol_min} to {verifier_card.protocol_max}."
        )
    if offer.kind is not ModelKind.NGRAM and (
        not offer.tokenizer_digest or offer.tokenizer_digest != verifier_offer.tokenizer_digest
    ):
        return RejectionReason.TOKENIZER_MISMATCH, (
            f"{offer.model_id} has tokenizer {offer.tokenizer_digest[:12] or 'unknown'}, "
            f"{verifier_offer.model_id} has {verifier_offer.tokenizer_digest[:12] or 'unknown'}."
        )
    if offer.target_weights_digest not in ("", verifier_offer.weights_digest):
        return RejectionReason.WRONG_TARGET, (
            f"{offer.model_id} was made for the verifier with weights "
            f"{offer.target_weights_digest[:12]}, {verifier_offer.model_id} has "
            f"{verifier_offer.weights_digest[:12] or 'unknown'}."
        )
    # Exactness comes last, so that what its sentence offers then works.
    return (
        _context_objection(request, offer)
        or _way_objection(verifier_card, card, offer, measured)
        or _exactness_objection(request, verifier_card, verifier_offer)
    )


def _not_allowed(card: Card, offer: ModelOffer) -> Objection:
    return RejectionReason.ROLE_NOT_ALLOWED, (
        f"The fleet's keepers do not let {card.name} serve as {offer.role.value} for others; "
        f"`fleet allow {card.name} {offer.role.value}` on a keeper does."
    )


def _request_objection(request: PlanRequest, card: Card, offer: ModelOffer) -> Objection | None:
    if request.without_proposer:
        return RejectionReason.NOT_REQUESTED, "The request wants the verifier alone."
    if request.proposer_model not in ("", offer.model_id):
        return RejectionReason.NOT_REQUESTED, f"The request names {request.proposer_model}."
    if request.proposer_node_id not in ("", card.node_id):
        asked = request.proposer_node_id[:12]
        return RejectionReason.NOT_REQUESTED, f"The request names proposer node {asked}."
    return None


def _context_objection(request: PlanRequest, offer: ModelOffer) -> Objection | None:
    if 0 < offer.context_length < request.context_tokens:
        return RejectionReason.CONTEXT_TOO_LONG, (
            f"The context of {request.context_tokens} tokens is longer than the "
            f"{offer.context_length} positions of {offer.model_id}."
        )
    return None


def _way_objection(
    verifier_card: Card, card: Card, offer: ModelOffer, measured: Measurements
) -> Objection | None:
    pair = (verifier_card.node_id, card.node_id)
    if measured.are_held_apart(*pair, offer.model_id):
        return RejectionReason.BREAKER_OPEN, (
            f"Drafts of {offer.model_id} on {card.name} came late, malformed or not at all to"
            f" {verifier_card.name}; the circuit breaker is open."
        )
    if not offer.step_costs:
        return RejectionReason.NOT_MEASURED, (
            f"{card.name} has not measured a step of {offer.model_id}."
        )
    if pair[0] != pair[1] and pair not in measured.round_trips:
        return RejectionReason.UNREACHABLE, (
            f"{verifier_card.name} has no measured way to {card.name}."
        )
    return None


def _exactness_objection(
    request: PlanRequest, verifier_card: Card, verifier_offer: ModelOffer
) -> Objection | None:
    if verifier_offer.exact or request.names_proposer:
        return None
    return RejectionReason.NOT_EXACT, (
        f"{verifier_offer.model_id} is not exact on {verifier_card.name}: its bits may depend on "
        "how a history is cut into blocks, so that drafting could change tokens on that machine; "
        "name the proposer in the request to accept that."
    )
