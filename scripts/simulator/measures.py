"""What is seen of a fleet from above."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness
from scripts.simulator.fleet import Burial, SimulatedFleet


def roots_agree(fleet: SimulatedFleet) -> bool:
    """Whether all living nodes have one root hash."""
    return len({node.membership.registry.root_hash() for node in fleet.living()}) == 1


def knows_all(fleet: SimulatedFleet) -> bool:
    """Whether each living node holds each living node ALIVE."""
    ids = [node.node_id for node in fleet.living()]
    return all(
        node_id in node.membership.registry
        and node.membership.registry.liveness(node_id) is Liveness.ALIVE
        for node in fleet.living()
        for node_id in ids
    )


def agrees(fleet: SimulatedFleet) -> bool:
    """Whether all living nodes hold each other ALIVE, and one root hash."""
    return roots_agree(fleet) and knows_all(fleet)


def all_hold(fleet: SimulatedFleet, announced: SignedCard) -> Callable[[], bool]:
    """Tells whether every living node holds the card or a newer one; who does is asked once."""
    card = announced.card
    least = (card.incarnation, card.sequence)
    waiting = fleet.living()

    def holds() -> bool:
        waiting[:] = [
            node
            for node in waiting
            if not node.is_dead and _order(fleet, node.node_id, card.node_id) < least
        ]
        return not waiting

    return holds


def _order(fleet: SimulatedFleet, observer: str, subject: str) -> tuple[int, int]:
    card = fleet.nodes[observer].membership.registry.card(subject)
    return card.incarnation, card.sequence


def all_hold_as(fleet: SimulatedFleet, node_id: str, liveness: Liveness) -> bool:
    """Whether all other living nodes hold the node so."""
    return all(
        node.membership.registry.liveness(node_id) is liveness
        for node in fleet.living()
        if node.node_id != node_id
    )


def false_deaths(burials: Iterable[Burial]) -> list[Burial]:
    """Those of nodes whose processes ran."""
    return [burial for burial in burials if burial.was_alive]


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def seconds_until(
    fleet: SimulatedFleet, limit_seconds: float, until: Callable[[], bool]
) -> float | None:
    """Virtual seconds until it holds; None when it does not within the limit."""
    started = fleet.now
    return fleet.now - started if fleet.run(limit_seconds, until=until) else None
