"""Where Prometheus finds the fleet's metrics, in the form of its HTTP service discovery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from kakeya_fleet.fleet.cards.card import Card
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.node_view import NodeView

# A suspect may only be slow, and a gap in its series would hide by how much.
_SCRAPED = frozenset({Liveness.ALIVE, Liveness.SUSPECT})


class TargetGroup(TypedDict):
    """One node: its host:port, and the labels that all its series get.

    Labels that begin with "__meta_" are dropped unless a relabelling keeps them.
    """

    targets: list[str]
    labels: dict[str, str]


def targets(states: Iterable[NodeView]) -> list[TargetGroup]:
    """The nodes that are alive or suspect and tell where HTTP answers, by name and id."""
    return [target_group(view) for view in scraped(states)]


def scraped(states: Iterable[NodeView]) -> list[NodeView]:
    """The same as views, for those who make groups of them in their own time."""
    found = [view for view in states if view.liveness in _SCRAPED and _address(view.card)]
    found.sort(key=lambda view: (view.card.name, view.card.node_id))
    return found


def target_group(view: NodeView) -> TargetGroup:
    """The group of one node that has an HTTP address, or one of HTTPS, which wants a key."""
    card = view.card
    return {
        "targets": [_address(card)],
        "labels": {
            **({} if card.http_address else {"__scheme__": "https"}),
            "node": card.name,
            "fleet": card.fleet_name,
            "roles": ",".join(_roles(card)),
            "__meta_kakeya_node_id": card.node_id,
            "__meta_kakeya_liveness": view.liveness.name.lower(),
            "__meta_kakeya_platform": card.platform,
            "__meta_kakeya_software_version": card.software_version,
        },
    }


def _address(card: Card) -> str:
    """host:port of its HTTP, or else of its HTTPS; empty without either."""
    if card.http_address or not card.https_port or not card.addresses:
        return card.http_address
    return f"{card.addresses[0].rpartition(':')[0]}:{card.https_port}"


def _roles(card: Card) -> list[str]:
    """The roles by name; none is "none", since Prometheus drops an empty label."""
    roles = {offer.role.value for offer in card.models}
    if card.archive is not None:
        roles.add("archive")
    return sorted(roles) or ["none"]
