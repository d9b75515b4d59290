"""When a draft counts as late, and how often a second proposer may be asked for the same block.

A draft is late once it takes longer than 95 % of the latest drafts of the same proposer on the
same stream (Dean and Barroso, "The Tail at Scale", 2013). Asked a second time at that moment, one
draft in twenty costs twice; the budget holds it there when a proposer becomes slow for good:

    hedges <= 0.05 * drafts that came.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

LATE_SHARE = 0.95
# Fewer say nothing of a twentieth; more would keep what the network was like minutes ago.
LEAST_ROUND_TRIPS = 20
KEPT_ROUND_TRIPS = 64
HEDGES_A_DRAFT = 0.05
# Hedges in a row: a proposer that hangs is to be found by the draft's deadline, not covered up.
MOST_SAVED_HEDGES = 2.0


@dataclass(slots=True)
class RoundTrips:
    """The latest round trips of one proposer's drafts on one stream, in seconds."""

    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_ROUND_TRIPS))

    def add(self, seconds: float) -> None:
        """A draft took so long; one that was given up at least so long."""
        self._seconds.append(seconds)

    def late_after(self) -> float | None:
        """Seconds after which a draft is late: their 95th percentile. None before 20 of them."""
        count = len(self._seconds)
        if count < LEAST_ROUND_TRIPS:
            return None
        return sorted(self._seconds)[math.ceil(LATE_SHARE * count) - 1]


@dataclass(slots=True)
class HedgeBudget:
    """How many hedges a session may still ask for; `saved` is in hedges."""

    saved: float = 0.0

    def earn(self) -> None:
        """A draft came."""
        self.saved = min(self.saved + HEDGES_A_DRAFT, MOST_SAVED_HEDGES)

    def spend(self) -> bool:
        """Takes one hedge; False when there is none."""
        # Twenty times a twentieth is a little less than one.
        if self.saved < 1.0 - 1e-9:
            return False
        self.saved -= 1.0
        return True
