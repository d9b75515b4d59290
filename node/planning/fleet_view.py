"""What the data plane may ask of the control plane: nodes, ways, channels."""

from __future__ import annotations

from typing import Protocol

import grpc.aio

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.views.node_view import NodeView


class FleetView(Protocol):
    """The fleet as this node knows it now. Used from the event loop's thread only."""

    @property
    def self_id(self) -> str:
        """Id of this node: SHA-256 of its public key, hexadecimal."""
        ...

    def nodes(self) -> list[NodeView]:
        """Every node whose card is known, this one included, by node id."""
        ...

    def round_trip(self, node_id: str) -> float | None:
        """Seconds of the quickest of the last 16 exchanges; None while unmeasured.

        0.0 for this node.
        """
        ...

    def address(self, node_id: str) -> str | None:
        """Where the node answers, host:port; None when it is unknown."""
        ...

    def boot_id(self, node_id: str) -> str:
        """What the node's process calls itself: another one after every start.

        Empty for an unknown node.
        """
        ...

    def channel(self, node_id: str, serving: Role | None = None) -> grpc.aio.Channel:
        """The one shared channel to a node, to use it in that role; its owner closes it.

        Raises `fleet.errors.NodeNotFound` for a node without a known address, and for one that
        the fleet's keepers do not let serve the role.
        """
        ...
