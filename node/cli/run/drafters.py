"""Who could draft for a verifier: what the fleet serves, and what every node can load."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya import Liveness, ModelKind, ModelOffer, NodeStatus, Role
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.model_folder import SHIPPED
from kakeya_fleet.engine.proposers.manifest import read_trained_target
from kakeya_fleet.engine.proposers.ngram import MODEL_ID as NGRAM
from kakeya_fleet.fleet.placement.first_drafter import Drafter


def served_drafters(nodes: Iterable[NodeStatus]) -> list[Drafter]:
    """The proposers of living nodes."""
    return [
        _drafter(offer, node.name)
        for node in nodes
        if node.liveness is Liveness.ALIVE
        for offer in node.models
        if offer.role is Role.PROPOSER
    ]


def _drafter(offer: ModelOffer, node: str) -> Drafter:
    tokenizer = "" if offer.kind is ModelKind.NGRAM else offer.tokenizer_digest
    return Drafter(offer.model_id, node, offer.target_weights_digest, tokenizer)


def loadable_drafters() -> list[Drafter]:
    """Those worth their load unasked: n-grams, and what was trained for a shipped verifier.

    That of the published model is no faster than n-grams in chats, and takes a second to load: who
    has other work for it names it.
    """
    found = [Drafter(NGRAM)]
    for name, folder in SHIPPED.items():
        try:
            target = read_trained_target(folder)
        except ModelUnusable:
            # A damaged one is no drafter; whoever names it is told why.
            continue
        if target.weights_digest and target.model_id in SHIPPED:
            found.append(Drafter(name, "", target.weights_digest, target.tokenizer_digest))
    return found
