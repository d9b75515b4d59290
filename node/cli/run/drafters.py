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
    """Those that come with every node: what was trained for one verifier, and n-grams."""
    found = [Drafter(NGRAM)]
    for name, folder in SHIPPED.items():
        try:
            target = read_trained_target(folder)
        except ModelUnusable:
            # A damaged one is no drafter; whoever names it is told why.
            continue
        if target.weights_digest:
            found.append(Drafter(name, "", target.weights_digest, target.tokenizer_digest))
    return found
