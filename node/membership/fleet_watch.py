"""What those who watch the fleet are told."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import Card
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.watch.watchers import WATCH_QUEUE, Watchers

__all__ = ["WATCH_QUEUE", "Change", "FleetWatch", "NodeState", "Removed"]


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as this one knows it. `card` is None while only rumours name it.

    `age_seconds` since the last sign of life, 0 for the node itself;
    `round_trip_seconds` is 0 while unmeasured.
    """

    node_id: str
    card: Card | None
    liveness: Liveness
    age_seconds: float
    round_trip_seconds: float
    is_self: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """A node whose tombstone expired."""

    node_id: str


Change = NodeState | Removed


class FleetWatch(Watchers[Change]):
    """Hands every change of the fleet to every watcher."""
