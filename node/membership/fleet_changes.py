"""What follows from a change of the fleet: watchers, events, the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from fleet.liveness import Liveness
from node.membership.fleet_watch import FleetWatch, NodeState, Removed
from node.membership.known_fleet import KnownFleet

EventSink = Callable[[Mapping[str, object]], None]

_EVENTS = {
    Liveness.ALIVE: "peer_joined",
    Liveness.SUSPECT: "peer_suspect",
    Liveness.DEAD: "peer_dead",
    Liveness.LEFT: "peer_left",
}

_log = structlog.get_logger(__name__)


class FleetChanges:
    """Tells everyone who wants to know, once a change."""

    def __init__(self, known: KnownFleet, watch: FleetWatch, on_event: EventSink) -> None:
        self._known = known
        self._watch = watch
        self._on_event = on_event
        self._told: dict[str, Liveness] = {}

    def changed(self, node_id: str) -> None:
        """A register of the node changed."""
        state = self._known.state(node_id)
        self._watch.publish(state)
        if not state.is_self and self._told.get(node_id) is not state.liveness:
            self._told[node_id] = state.liveness
            self._tell(state)

    def removed(self, node_id: str) -> None:
        """The node's tombstone expired."""
        self._told.pop(node_id, None)
        self._watch.publish(Removed(node_id))

    def _tell(self, state: NodeState) -> None:
        event = _EVENTS[state.liveness]
        facts: dict[str, object] = {"node_id": state.node_id}
        if state.card is not None:
            facts |= {
                "name": state.card.name,
                "address": state.card.addresses[0],
                "incarnation": state.card.incarnation,
            }
        _log.info(event, **facts)
        self._on_event({"event": event, **facts})
