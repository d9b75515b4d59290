"""How often this node calls somebody because others said so: a token bucket an introducer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

DIALS_A_SECOND = 4.0
"""First calls, and probes for others, that one host may cause a second after its burst."""
DIAL_BURST = 64.0
"""That it may cause at once: a fleet of 64 is measured whole when its first card arrives."""
MAX_INTRODUCERS = 256
"""Buckets that are kept; the one that was used the longest ago is full again by then."""


class DialBudget:
    """`clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, introducer: str) -> bool:
        """Whether the host may cause one more call now, which is counted then."""
        now = self._clock()
        tokens, filled_at = self._buckets.pop(introducer, (DIAL_BURST, now))
        tokens = min(DIAL_BURST, tokens + (now - filled_at) * DIALS_A_SECOND)
        is_left = tokens >= 1.0
        self._buckets[introducer] = (tokens - is_left, now)
        if len(self._buckets) > MAX_INTRODUCERS:
            self._buckets.popitem(last=False)
        return is_left
