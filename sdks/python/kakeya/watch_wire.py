"""From messages of watches to their events; None for a kind that is newer than this client."""

from __future__ import annotations

from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.v1 import capability_pb2, runtime_pb2
from kakeya.watch_values import (
    FleetEvent,
    FleetSnapshot,
    NodeActivity,
    NodeChanged,
    NodeRemoved,
    NodeStatus,
    SessionsEvent,
)


def node_status(message: capability_pb2.NodeStatus) -> NodeStatus:
    """One node, as the answering node knows it."""
    # A card that was received carries its owner's protocol; a bare id does not.
    known = message.card.protocol_max > 0
    return NodeStatus(
        node_id=message.card.node_id,
        liveness=wire.liveness(message.liveness),
        age_seconds=message.age_seconds,
        round_trip_seconds=message.round_trip_seconds or None,
        is_self=message.is_self,
        card=wire.card(message.card) if known else None,
    )


def fleet_event(message: capability_pb2.WatchFleetResponse) -> FleetEvent | None:
    """One event of a watch of the fleet."""
    match message.WhichOneof("kind"):
        case "snapshot":
            nodes = message.snapshot.nodes
            return FleetSnapshot(
                message.snapshot.fleet_name, tuple(node_status(each) for each in nodes)
            )
        case "changed":
            return NodeChanged(node_status(message.changed))
        case "removed_node_id":
            return NodeRemoved(message.removed_node_id)
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")


def node_activity(message: capability_pb2.WatchNodeResponse) -> NodeActivity | None:
    """One event of a node's watch."""
    match message.WhichOneof("kind"):
        case "history":
            return wire.node_history(message.history)
        case "sample":
            return wire.node_sample(message.sample)
        case "event":
            return wire.node_event(message.event)
        case "transfer":
            return wire.transfer(message.transfer)
        case "node":
            return wire.node(message.node)
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")


def sessions_event(message: runtime_pb2.WatchSessionsResponse) -> SessionsEvent | None:
    """One event of a watch of sessions."""
    match message.WhichOneof("kind"):
        case "snapshot":
            return wire.sessions_snapshot(message.snapshot)
        case "changed":
            return wire.session_activity(message.changed)
        case "ended":
            return wire.ended_session(message.ended)
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")
