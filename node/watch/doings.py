"""Where the rooms of a node note what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.node.watch.event_log import EventLog
from kakeya_fleet.node.watch.transfers import Transfers


@dataclass(frozen=True, slots=True)
class Doings:
    """The events and the transfers of one node."""

    events: EventLog = field(default_factory=EventLog)
    transfers: Transfers = field(default_factory=Transfers)
