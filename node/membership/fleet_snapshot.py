"""The fleet as those who watch it are told of it."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.node.membership.capability_wire import change_to_wire, state_to_wire
from kakeya_fleet.node.membership.fleet_watch import Change, Removed
from kakeya_fleet.node.membership.known_fleet import KnownFleet


def subject_of(change: Change) -> tuple[str, bool]:
    """The node that a change is about, and whether it is no more."""
    return change.node_id, isinstance(change, Removed)


class WatchedNodes:
    """The nodes of the known fleet, by id: a `node.watch.snapshot_parts.Watched`."""

    def __init__(self, known: KnownFleet) -> None:
        self._known = known

    def item(self, key: str) -> wire.NodeStatus | None:
        """See `Watched.item`."""
        try:
            return state_to_wire(self._known.state(key))
        except NodeNotFound:
            return None

    def snapshot(self, items: Sequence[wire.NodeStatus], *, more: bool) -> wire.WatchFleetResponse:
        """See `Watched.snapshot`."""
        return wire.WatchFleetResponse(
            snapshot=wire.FleetSnapshot(nodes=items, fleet_name=self._known.fleet_name, more=more)
        )

    def changed(self, key: str) -> wire.WatchFleetResponse | None:
        """See `Watched.changed`."""
        status = self.item(key)
        return wire.WatchFleetResponse(changed=status) if status is not None else None

    def change(self, message: Change) -> wire.WatchFleetResponse:
        """See `Watched.change`."""
        return change_to_wire(message)
