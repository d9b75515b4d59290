"""What placement is given: nodes, and what was measured between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness

# In `Measurements.free_bytes`: whether memory suffices is decided elsewhere.
UNLIMITED_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as this one knows it; `card` is without what it may not serve.

    `withheld` are the models of its card that the fleet's keepers do not let it serve, and
    `withholds_archive` tells whether its archive is among that.
    """

    card: Card
    liveness: Liveness
    withheld: tuple[ModelOffer, ...] = ()
    withholds_archive: bool = False


def view_of(card: Card, liveness: Liveness, allowed: frozenset[Role] | None) -> NodeView:
    """A node that may serve the roles `allowed`, None for all of them."""
    if allowed is None:
        return NodeView(card, liveness)
    served = tuple(offer for offer in card.models if offer.role in allowed)
    archive = card.archive if Role.ARCHIVE in allowed else None
    return NodeView(
        replace(card, models=served, archive=archive),
        liveness,
        tuple(offer for offer in card.models if offer.role not in allowed),
        card.archive is not archive,
    )


def withheld_roles(card: Card, allowed: frozenset[Role] | None) -> frozenset[Role]:
    """The roles that a card offers and that its node may not serve."""
    offered = {offer.role for offer in card.models} | ({Role.ARCHIVE} if card.archive else set())
    return frozenset() if allowed is None else frozenset(offered - allowed)


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """Share of drafted tokens accepted, given that all before them in the block were.

    `acceptance_rate` is in 0 to 1, the mean over `session_count` sessions, of which
    four of five lie in `low` to `high`; `drafted_count` tokens are behind it. A session
    with few tokens counts as a part of one, so that 0 says nothing at all.
    """

    acceptance_rate: float
    drafted_count: int
    low: float
    high: float
    session_count: float


@dataclass(frozen=True, slots=True)
class MeasuredDrafts:
    """What drafts of a proposer of `kind` took a verifier, by drafted tokens, without the way."""

    kind: ModelKind
    costs: tuple[StepCost, ...]


ANY_MODEL = ""
"""In place of a model's name: whichever."""


PairOfNodes = tuple[tuple[str, str], tuple[str, str]]
"""Node and model of a verifier, node and model of a proposer."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured.

    `round_trips`: (verifier node, proposer node) -> seconds. `acceptances`:
    (verifier model, proposer model) -> share. `free_bytes`: node -> bytes that
    a session may take, in place of the card's, or `UNLIMITED_BYTES`.
    `open_breakers`: (verifier node, proposer node, proposer model) that a circuit breaker
    holds apart, `ANY_MODEL` for all models there. `archive_waits`: (verifier node,
    archive node) -> seconds that a layer waits for an archive's answer, in place of the
    round trip.
    `archive_free_bytes`: node -> bytes that its archive has free, in place of the card's.
    `distrusted_archives`: (verifier node, archive node) -> what the archive did, the end of a
    sentence. `draft_costs`: (verifier node, proposer node, proposer model) -> what its drafts
    took, in place of the card's. `gains`: how many times as fast as alone a pair was, in place of
    what is predicted.
    """

    round_trips: Mapping[tuple[str, str], float] = field(default_factory=dict)
    acceptances: Mapping[tuple[str, str], MeasuredAcceptance] = field(default_factory=dict)
    gains: Mapping[PairOfNodes, float] = field(default_factory=dict)
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    open_breakers: frozenset[tuple[str, str, str]] = frozenset()
    archive_waits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    archive_free_bytes: Mapping[str, int] = field(default_factory=dict)
    distrusted_archives: Mapping[tuple[str, str], str] = field(default_factory=dict)
    draft_costs: Mapping[tuple[str, str, str], MeasuredDrafts] = field(default_factory=dict)

    def are_held_apart(self, verifier: str, proposer: str, model: str) -> bool:
        """Whether a breaker of the node `verifier` shuts out that model of the node `proposer`."""
        return not self.open_breakers.isdisjoint(
            {(verifier, proposer, model), (verifier, proposer, ANY_MODEL)}
        )
