"""How long this node's sessions wait for the answers of archives, one by one."""

from __future__ import annotations

import statistics
import threading
from collections import deque

from kakeya_fleet.fleet.placement.archive_choice import archive_address
from kakeya_fleet.node.planning.fleet_view import FleetView

ANSWERS_KEPT = 256
LEAST_ANSWERS = 32
"""Fewer say too little: the first of a session are its opening."""


class AnswerWaits:
    """The latest waits by archive. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, deque[float]] = {}

    def observe(self, address: str, seconds: float) -> None:
        """Notes that a layer waited so long for the archive at host:port."""
        with self._lock:
            self._kept.setdefault(address, deque(maxlen=ANSWERS_KEPT)).append(seconds)

    def by_node(self, fleet: FleetView) -> dict[str, float]:
        """Median seconds by node, of those whose archive is known. From the event loop's thread."""
        waits = self.medians()
        found: dict[str, float] = {}
        for view in fleet.nodes():
            card = view.card
            at = fleet.address(card.node_id)
            if card.archive is None or at is None:
                continue
            wait = waits.get(archive_address(at, card.archive))
            if wait is not None:
                found[card.node_id] = wait
        return found

    def medians(self) -> dict[str, float]:
        """Median seconds by host:port, of archives with enough answers."""
        with self._lock:
            kept = {address: tuple(waits) for address, waits in self._kept.items()}
        return {
            address: statistics.median(waits)
            for address, waits in kept.items()
            if len(waits) >= LEAST_ANSWERS
        }
