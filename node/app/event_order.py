"""In which order an agent's events are told: its own life begins before the fleet's."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_fleet.node.membership.fleet_changes import EventSink


class EventOrder:
    """Whoever reads the first line of `fleet join --json` reads what was started, not a peer.

    Peers may call as soon as the port is open, so that they can be heard before the node has
    said anything: what happens in the fleet until then is told right after.
    """

    def __init__(self, tell: EventSink) -> None:
        self._tell = tell
        self._is_begun = False
        self._held: list[Mapping[str, object]] = []

    def of_node(self, event: Mapping[str, object]) -> None:
        """Tells an event of the node's own life; the first one opens the way for the fleet's."""
        self._tell(event)
        self._is_begun = True
        held, self._held = self._held, []
        for each in held:
            self._tell(each)

    def of_fleet(self, event: Mapping[str, object]) -> None:
        """Tells an event of the fleet, once the node's own life has begun."""
        if self._is_begun:
            self._tell(event)
        else:
            self._held.append(event)
