"""Values of watches: what comes first, and what changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kakeya.generated.values import (
    ArchiveOffer,
    Card,
    EndedSession,
    Liveness,
    ModelOffer,
    Node,
    NodeEvent,
    NodeHistory,
    NodeSample,
    Role,
    SessionActivity,
    SessionsSnapshot,
    Transfer,
)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node, as the answering node knows it.

    `card` is None while only the node's id is known. `age_seconds` counts
    since the last sign of life, 0 for the answering node itself;
    `round_trip_seconds` is None when it was never measured. `withheld_roles` are
    those that it offers and the fleet's keepers do not let it serve: its card is without them.
    """

    node_id: str
    liveness: Liveness
    age_seconds: float
    round_trip_seconds: float | None
    is_self: bool
    card: Card | None
    withheld_roles: tuple[Role, ...] = ()

    @property
    def name(self) -> str:
        """Name for people; the first 12 digits of the id while no card is known."""
        return self.card.name if self.card else self.node_id[:12]

    @property
    def address(self) -> str:
        """The best address, host:port; empty when none is known."""
        return self.card.addresses[0] if self.card and self.card.addresses else ""

    @property
    def applications_address(self) -> str:
        """Where clients with a key call it, host:port; empty in a fleet without an authority."""
        if self.card is None or not self.card.applications_port or not self.address:
            return ""
        return f"{self.address.rpartition(':')[0]}:{self.card.applications_port}"

    @property
    def models(self) -> tuple[ModelOffer, ...]:
        """Models that the node serves; empty while no card is known."""
        return self.card.models if self.card else ()

    @property
    def archive(self) -> ArchiveOffer | None:
        """Its archive; None without one, and while no card is known."""
        return self.card.archive if self.card else None


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All nodes that are known, by name; the first event of a watch."""

    fleet_name: str
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node that changed or is new."""

    node: NodeStatus


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node that was forgotten."""

    node_id: str


FleetEvent: TypeAlias = FleetSnapshot | NodeChanged | NodeRemoved
NodeActivity: TypeAlias = NodeHistory | NodeSample | NodeEvent | Transfer | Node
SessionsEvent: TypeAlias = SessionsSnapshot | SessionActivity | EndedSession
