"""Nodes that never answered this one, by who introduced them: who leaves a full registry.

Anybody can make keys, and with them cards of nodes that are not there. They take room only
while there is some: in a full registry a newcomer takes the place of a stranger whose
introducer brought the most, the dead ones first, of equals the oldest. Nodes that answered
are never displaced.
"""

from __future__ import annotations


class Strangers:
    """Ids by introducer, oldest first; an introducer is a host, empty when it is not known."""

    def __init__(self) -> None:
        self._introduced: dict[str, dict[str, None]] = {}
        self._introducers: dict[str, str] = {}
        self._dead: dict[str, None] = {}

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._introducers

    def __len__(self) -> int:
        return len(self._introducers)

    def add(self, node_id: str, introducer: str) -> None:
        """A card of a node that is not known here was taken."""
        self._introducers[node_id] = introducer
        self._introduced.setdefault(introducer, {})[node_id] = None

    def died(self, node_id: str) -> None:
        """The node is DEAD or LEFT: it goes before others."""
        if node_id in self._introducers:
            self._dead[node_id] = None

    def lives(self, node_id: str) -> None:
        """The node is back with a newer incarnation."""
        self._dead.pop(node_id, None)

    def introducer(self, node_id: str) -> str:
        """The host that brought the stranger; empty when that is not known, or no stranger."""
        return self._introducers.get(node_id, "")

    def discard(self, node_id: str) -> None:
        """The node answered, or is forgotten."""
        introducer = self._introducers.pop(node_id, None)
        if introducer is None:
            return
        self._dead.pop(node_id, None)
        share = self._introduced[introducer]
        del share[node_id]
        if not share:
            del self._introduced[introducer]

    def displaced_by(self, introducer: str, *, is_itself: bool) -> str | None:
        """Who makes way for a newcomer of the introducer; None when nobody does.

        Who introduces itself may take a place of its own host's share, however large; what
        others tell of only where the host has brought less than another one.
        """
        if self._dead:
            return next(iter(self._dead))
        if not self._introduced:
            return None
        largest = max(self._introduced.values(), key=len)
        own = self._introduced.get(introducer, {})
        if not is_itself and len(own) + 1 >= len(largest):
            return None
        return next(iter(largest))
