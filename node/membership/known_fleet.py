"""The fleet as this node knows it: registers joined with measured ways."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.fleet.views.node_view import NodeView, view_of, withheld_roles
from kakeya_fleet.node.membership.fleet_watch import NodeState
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.metrics import NodeMetrics


class KnownFleet:
    """Implements `node.planning.fleet_view.FleetView`. `clock` gives monotonic seconds.

    Liveness is what this node found itself: whom only others suspect is ALIVE here.
    """

    def __init__(
        self,
        membership: Membership,
        peers: Peers,
        clock: Callable[[], float],
        trust_hash: Callable[[], bytes] = bytes,
        allowed_roles: Callable[[str], frozenset[Role] | None] = lambda _: None,
    ) -> None:
        """`allowed_roles` gives what keepers let a node serve for others, None for every role."""
        self.trust_hash = trust_hash
        """Gives the hash of what is known of the fleet's keepers; empty without an authority."""
        self._membership = membership
        self._registry = membership.registry
        self._peers = peers
        self._clock = clock
        self._allowed_roles = allowed_roles

    @property
    def self_id(self) -> str:
        """Id of this node."""
        return self._registry.own_id

    @property
    def fleet_name(self) -> str:
        """Name of the fleet."""
        return self._registry.own.card.fleet_name

    def nodes(self) -> list[NodeView]:
        """Every node whose card is known, this one included, by node id.

        Others without what keepers do not let them serve: this one is its own programs'.
        """
        return [self._view(node_id) for node_id in sorted(self._registry.nodes())]

    def _view(self, node_id: str) -> NodeView:
        card, liveness = self._registry.card(node_id), self._membership.found(node_id)
        return view_of(card, liveness, self._served_here(node_id))

    def _served_here(self, node_id: str) -> frozenset[Role] | None:
        """The roles in which this node turns to another one, None for all: to itself in all."""
        return None if node_id == self.self_id else self._allowed_roles(node_id)

    def round_trip(self, node_id: str) -> float | None:
        """Seconds of the quickest of the last 16 exchanges; 0.0 for this node."""
        return 0.0 if node_id == self.self_id else self._peers.round_trip(node_id)

    def address(self, node_id: str) -> str | None:
        """Where the node answers, host:port; None for an unknown node."""
        if node_id not in self._registry:
            return None
        return self._peers.choose(node_id, self._registry.card(node_id).addresses)

    def way(self, node_id: str) -> str:
        """Where the node answered this one last, host:port; empty when it never did."""
        return self._peers.way(node_id)

    def boot_id(self, node_id: str) -> str:
        """What the node's process calls itself; empty for an unknown node."""
        if node_id not in self._registry:
            return ""
        return self._registry.card(node_id).boot_id

    def channel(self, node_id: str, serving: Role | None = None) -> grpc.aio.Channel:
        """The shared channel to the node, to use it in that role.

        Raises `NodeNotFound`, also for one that keepers do not let serve the role.
        """
        address = self.address(node_id)
        if address is None:
            raise NodeNotFound(f"no node {node_id[:64]!r} is known here", node_id=node_id[:64])
        allowed = self._served_here(node_id)
        if serving is not None and allowed is not None and serving not in allowed:
            raise NodeNotFound(
                f"the fleet's keepers do not let node {node_id[:12]} serve as {serving.value}",
                node_id=node_id,
            )
        return self._peers.channel(address, node_id)

    def state(self, node_id: str) -> NodeState:
        """One node as it is known now. Raises `NodeNotFound`."""
        record = self._registry.record(node_id)
        is_self = node_id == self.self_id
        card, allowed = record.card, self._allowed_roles(node_id)
        return NodeState(
            node_id=node_id,
            card=card if card is None else self._view(node_id).card,
            liveness=self._membership.found(node_id),
            age_seconds=0.0 if is_self else max(0.0, self._clock() - record.seen_at),
            round_trip_seconds=self.round_trip(node_id) or 0.0,
            is_self=is_self,
            withheld_roles=withheld_roles(card, allowed) if card is not None else frozenset(),
        )

    def states(self) -> list[NodeState]:
        """All nodes that are known, tombstones included."""
        return [self.state(node_id) for node_id in self._registry.nodes()]

    def node_ids(self) -> list[str]:
        """Ids of all nodes that are known, tombstones included, by their names."""

        def name(node_id: str) -> tuple[str, str]:
            return self._registry.card(node_id).name, node_id

        return sorted(self._registry.nodes(), key=name)

    def count(self, metrics: NodeMetrics) -> None:
        """Sets the gauges of members by liveness."""
        present = [self._membership.found(node_id) for node_id in self._registry.nodes()]
        for liveness in Liveness:
            metrics.members.labels(liveness=liveness.name.lower()).set(present.count(liveness))
