"""From messages of watches to their events; None for a kind that is newer than this client."""

from __future__ import annotations

from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.generated.values import SessionActivity, SessionsSnapshot
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
        withheld_roles=tuple(map(wire.role, message.withheld_roles)),
    )


class FleetEvents:
    """The events of one watch of the fleet: parts of its snapshot are joined to one."""

    def __init__(self) -> None:
        self._nodes: list[NodeStatus] = []

    def __call__(self, message: capability_pb2.WatchFleetResponse) -> FleetEvent | None:
        """The event of a message; None also for a part that others follow."""
        match message.WhichOneof("kind"):
            case "snapshot":
                self._nodes += map(node_status, message.snapshot.nodes)
                if message.snapshot.more:
                    return None
                nodes, self._nodes = tuple(self._nodes), []
                return FleetSnapshot(message.snapshot.fleet_name, nodes)
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


class SessionsEvents:
    """The events of one watch of sessions: parts of its snapshot are joined to one."""

    def __init__(self) -> None:
        self._sessions: list[SessionActivity] = []

    def __call__(self, message: runtime_pb2.WatchSessionsResponse) -> SessionsEvent | None:
        """The event of a message; None also for a part that others follow."""
        match message.WhichOneof("kind"):
            case "snapshot":
                self._sessions += wire.sessions_snapshot(message.snapshot).sessions
                if message.snapshot.more:
                    return None
                sessions, self._sessions = tuple(self._sessions), []
                return SessionsSnapshot(sessions)
            case "changed":
                return wire.session_activity(message.changed)
            case "ended":
                return wire.ended_session(message.ended)
            case None:
                return None
            case other:
                raise UnexpectedError(f"a watch answered with {other}")


def has_more(
    message: capability_pb2.WatchFleetResponse | runtime_pb2.WatchSessionsResponse,
) -> bool:
    """Whether a further part of the snapshot follows at once."""
    return message.snapshot.more
