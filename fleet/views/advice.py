"""What a fleet lacks, as its cards tell: what a person would start next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.views.names import free_name


@dataclass(frozen=True, slots=True)
class Advice:
    """`lacks` is the role to serve next, None when there is one of each or a node still loads.

    `verifier` is the model to generate with, empty without one; `name` is one that no node
    has.
    """

    lacks: Role | None
    verifier: str
    name: str


def advise(own: Card, others: Iterable[Card]) -> Advice:
    """For the person who has just started the node `own`; `others` are the live nodes besides."""
    cards = (own, *others)
    verifiers = [offer for card in cards for offer in card.offers(Role.VERIFIER)]
    return Advice(
        lacks=None if any(card.loading for card in cards) else _lacking(cards, verifiers),
        verifier=verifiers[0].model_id if verifiers else "",
        name=free_name(own.name, {card.name for card in cards}),
    )


def _lacking(cards: tuple[Card, ...], verifiers: list[ModelOffer]) -> Role | None:
    if not verifiers:
        return Role.VERIFIER
    proposers = [offer for card in cards for offer in card.offers(Role.PROPOSER)]
    if not any(_drafts_for(proposer, each) for proposer in proposers for each in verifiers):
        return Role.PROPOSER
    return None if any(card.archive is not None for card in cards) else Role.ARCHIVE


def _drafts_for(proposer: ModelOffer, verifier: ModelOffer) -> bool:
    """Whether the two belong together; how fast, and whether it pays, the planner decides."""
    if proposer.target_weights_digest not in ("", verifier.weights_digest):
        return False
    return (
        proposer.kind is ModelKind.NGRAM or proposer.tokenizer_digest == verifier.tokenizer_digest
    )
