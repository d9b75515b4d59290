"""Archives that gave this node's sessions wrong numbers: left alone for a while."""

from __future__ import annotations

import threading

from kakeya_fleet.fleet.placement.archive_choice import archive_address
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault

_SAID = {
    RestorerFault.NOT_FINITE: "answered with numbers that are not finite",
    RestorerFault.IMPOSSIBLE: "gave an answer that cannot be",
    RestorerFault.ALTERED: "gave back other keys and values than were deposited",
    RestorerFault.FALSE_ANSWER: "gave a false answer",
}


class DistrustedArchives:
    """By host:port, so that one which is started anew begins anew. Any thread may call."""

    def __init__(self, seconds: float) -> None:
        """Each is left alone for so long."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until: dict[str, tuple[float, RestorerFault]] = {}

    def note(self, address: str, fault: RestorerFault, now: float) -> None:
        """Notes a fault; those that say nothing about an archive's numbers are passed over."""
        if not fault.is_of_numbers:
            return
        with self._lock:
            self._until[address] = (now + self._seconds, fault)

    def by_node(self, fleet: FleetView, now: float) -> dict[str, str]:
        """What the archives of nodes did, as ends of a sentence. From the event loop's thread."""
        with self._lock:
            self._until = {
                address: entry for address, entry in self._until.items() if entry[0] > now
            }
            until = dict(self._until)
        if not until:
            return {}
        found: dict[str, str] = {}
        for view in fleet.nodes():
            at = fleet.address(view.card.node_id)
            if view.card.archive is None or at is None:
                continue
            entry = until.get(archive_address(at, view.card.archive))
            if entry is not None:
                left, fault = entry[0] - now, entry[1]
                found[view.card.node_id] = f"{_SAID[fault]}, and is not asked for {left:.0f} s"
        return found
