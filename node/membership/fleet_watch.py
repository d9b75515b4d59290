"""What those who watch the fleet are told."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import Card, Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.watch.watchers import WATCH_QUEUE, Watchers

__all__ = ["WATCH_QUEUE", "Change", "FleetWatch", "NodeState", "Removed"]


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as this one knows it. `card` is None while only rumours name it.

    `age_seconds` since the last sign of life, 0 for the node itself;
    `round_trip_seconds` is 0 while unmeasured. `withheld_roles` are those that it offers and
    that the fleet's keepers do not let it serve; the card is without them, but the node's own.
    """

    node_id: str
    card: Card | None
    liveness: Liveness
    age_seconds: float
    round_trip_seconds: float
    is_self: bool
    withheld_roles: frozenset[Role] = frozenset()


@dataclass(frozen=True, slots=True)
class Removed:
    """A node whose tombstone expired."""

    node_id: str


Change = NodeState | Removed


class FleetWatch(Watchers[Change]):
    """Hands every change of the fleet to every watcher."""
