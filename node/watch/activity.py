"""Where the rooms of a node note what they do, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kakeya_fleet.node.watch.event_log import EventLog
from kakeya_fleet.node.watch.span_ring import SpanRing
from kakeya_fleet.node.watch.transfers import Transfers


def _ignore() -> None:
    """The listener before there is one."""


@dataclass(slots=True)
class NodeActivity:
    """The events, the transfers and the latest spans of one node.

    `on_change` hears of sessions that come and go, and of generations that begin and end.
    """

    events: EventLog = field(default_factory=EventLog)
    transfers: Transfers = field(default_factory=Transfers)
    on_change: Callable[[], None] = _ignore
    spans: SpanRing = field(default_factory=SpanRing)

    def changed(self) -> None:
        """Something changed that people wait for."""
        self.on_change()
