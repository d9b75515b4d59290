"""What follows when keepers say which roles a member may serve."""

from __future__ import annotations

from kakeya_fleet.fleet.views.node_view import withheld_roles
from kakeya_fleet.node.membership.fleet_changes import FleetChanges
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.event_log import EventKind, EventLog


class AllowedRolesWatch:
    """Tells whoever watches the fleet, and people of this node. Belongs to the event loop."""

    def __init__(
        self, trust: Trust, known: KnownFleet, changes: FleetChanges, events: EventLog
    ) -> None:
        """From now on every change of what is trusted is looked at."""
        self._ledger = trust.ledger
        self._known = known
        self._changes = changes
        self._events = events
        self._told = trust.ledger.judged.allowances
        trust.on_change.append(self.look)

    def look(self) -> None:
        """Tells of every node whose roles are others than before."""
        before, self._told = self._told, self._ledger.judged.allowances
        present = {view.card.node_id for view in self._known.nodes()}
        for node_id in before.keys() | self._told.keys():
            if before.get(node_id) == self._told.get(node_id) or node_id not in present:
                continue
            self._changes.changed(node_id)
            if node_id == self._known.self_id:
                self.tell_own()

    def tell_own(self) -> None:
        """Adds to the events what others do not take from this node, or that they take all."""
        card = self._known.state(self._known.self_id).card
        allowed = self._ledger.allowed_roles(self._known.self_id)
        withheld = withheld_roles(card, allowed) if card is not None else frozenset()
        if withheld:
            roles = ", ".join(sorted(withheld))
            kind, words = EventKind.ROLES_WITHHELD, f"do not let this node serve others as {roles}"
        else:
            kind, words = EventKind.ROLES_ALLOWED, "let this node serve all that it offers"
        self._events.add(kind, f"The fleet's keepers {words}.")
