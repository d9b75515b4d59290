"""The fleet as this node knows it: registers joined with measured ways."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.fleet.placement.placement import NodeView
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
    ) -> None:
        self.trust_hash = trust_hash
        """Gives the hash of what is known of the fleet's keepers; empty without an authority."""
        self._membership = membership
        self._registry = membership.registry
        self._peers = peers
        self._clock = clock

    @property
    def self_id(self) -> str:
        """Id of this node."""
        return self._registry.own_id

    @property
    def fleet_name(self) -> str:
        """Name of the fleet."""
        return self._registry.own.card.fleet_name

    def nodes(self) -> list[NodeView]:
        """Every node whose card is known, this one included, by node id."""
        return [
            NodeView(self._registry.card(node_id), self._membership.found(node_id))
            for node_id in sorted(self._registry.nodes())
        ]

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

    def channel(self, node_id: str) -> grpc.aio.Channel:
        """The shared channel to the node. Raises `NodeNotFound`."""
        address = self.address(node_id)
        if address is None:
            raise NodeNotFound(f"no node {node_id[:64]!r} is known here", node_id=node_id[:64])
        return self._peers.channel(address, node_id)

    def state(self, node_id: str) -> NodeState:
        """One node as it is known now. Raises `NodeNotFound`."""
        record = self._registry.record(node_id)
        is_self = node_id == self.self_id
        return NodeState(
            node_id=node_id,
            card=record.card,
            liveness=self._membership.found(node_id),
            age_seconds=0.0 if is_self else max(0.0, self._clock() - record.seen_at),
            round_trip_seconds=self.round_trip(node_id) or 0.0,
            is_self=is_self,
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
