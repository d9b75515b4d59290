"""What follows from a change of the fleet: watchers, events, the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.names import free_name
from kakeya_fleet.node.membership.fleet_watch import FleetWatch, NodeState, Removed
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

EventSink = Callable[[Mapping[str, object]], None]

_EVENTS = {
    Liveness.ALIVE: "peer_joined",
    Liveness.SUSPECT: "peer_suspect",
    Liveness.DEAD: "peer_dead",
    Liveness.LEFT: "peer_left",
}

MOST_NAMESAKES = 8
"""Nodes of one name that are told of: people need no ninth, and each is a look at all names."""

_log = structlog.get_logger(__name__)


class FleetChanges:
    """Tells everyone who wants to know, once a change."""

    def __init__(
        self, known: KnownFleet, watch: FleetWatch, on_event: EventSink, events: EventLog
    ) -> None:
        self._known = known
        self._watch = watch
        self._on_event = on_event
        self._events = events
        self._told: dict[str, Liveness] = {}
        self._noted: dict[str, Liveness] = {}
        self._namesakes: set[str] = set()

    def changed(self, node_id: str) -> None:
        """A register of the node changed."""
        state = self._known.state(node_id)
        self._watch.publish(state)
        if state.is_self:
            return
        if self._noted.get(node_id) is not state.liveness:
            self._note(state, self._noted.get(node_id))
            self._noted[node_id] = state.liveness
        self._compare_names(state)
        # Whoever waits for a node to join waits for what it serves.
        is_coming = state.liveness is Liveness.ALIVE and state.card and state.card.loading
        if self._told.get(node_id) is not state.liveness and not is_coming:
            self._told[node_id] = state.liveness
            self._tell(state)

    def removed(self, node_id: str) -> None:
        """The node's tombstone expired."""
        self._told.pop(node_id, None)
        self._noted.pop(node_id, None)
        self._namesakes.discard(node_id)
        self._watch.publish(Removed(node_id))

    def _note(self, state: NodeState, before: Liveness | None) -> None:
        """Adds the change to the events of this node."""
        name = state.card.name if state.card is not None else state.node_id[:12]
        back = before in (Liveness.SUSPECT, Liveness.DEAD)
        joined = "answers again" if back else "joined the fleet"
        kind, words = {
            Liveness.ALIVE: (EventKind.PEER_JOINED, joined),
            Liveness.SUSPECT: (EventKind.PEER_SUSPECT, "does not answer: it is suspect"),
            Liveness.DEAD: (EventKind.PEER_DEAD, "is dead: nobody of the fleet reaches it"),
            Liveness.LEFT: (EventKind.PEER_LEFT, "left the fleet"),
        }[state.liveness]
        self._events.add(kind, f"{name} {words}.", subject_node_id=state.node_id)

    def _compare_names(self, state: NodeState) -> None:
        """Tells once of a node that is called as this one is: names are looked up by people."""
        own = self._known.state(self._known.self_id).card
        card = state.card
        if own is None or card is None or card.name != own.name:
            return
        if state.liveness is not Liveness.ALIVE or state.node_id in self._namesakes:
            return
        if len(self._namesakes) >= MOST_NAMESAKES:
            return
        self._namesakes.add(state.node_id)
        taken = {view.card.name for view in self._known.nodes()}
        free, address = free_name(own.name, taken), card.addresses[0]
        self._events.add(
            EventKind.SAME_NAME,
            f"Another node is called {own.name} as this one is, at {address}: "
            "who asks for that name is refused.",
            mend=f"Join again with another name, such as --name {free}.",
            subject_node_id=state.node_id,
        )
        facts = {"name": own.name, "node_id": state.node_id, "address": address, "free_name": free}
        _log.info("same_name", **facts)
        self._on_event({"event": "same_name", **facts})

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
