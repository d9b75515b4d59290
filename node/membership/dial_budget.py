"""How often this node calls somebody because others said so: a token bucket an introducer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from kakeya_fleet.node.admission.limits import MembershipLimits


class DialBudget:
    """`clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], limits: MembershipLimits | None = None) -> None:
        self.limits = limits or MembershipLimits()
        self.refused_count = 0
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def most_taken(self) -> int:
        """What is gone of the burst of whoever caused the most of late."""
        now = self._clock()
        left = (self._filled(*bucket, now) for bucket in self._buckets.values())
        return int(self.limits.dial_burst - min(left, default=self.limits.dial_burst))

    def take(self, introducer: str) -> bool:
        """Whether the host may cause one more call now, which is counted then."""
        now = self._clock()
        most = float(self.limits.dial_burst)
        tokens = self._filled(*self._buckets.pop(introducer, (most, now)), now)
        is_left = tokens >= 1.0
        self._buckets[introducer] = (tokens - is_left, now)
        if len(self._buckets) > self.limits.introducers:
            self._buckets.popitem(last=False)
        self.refused_count += not is_left
        return is_left

    def _filled(self, tokens: float, filled_at: float, now: float) -> float:
        added = (now - filled_at) * self.limits.dials_a_second
        return min(float(self.limits.dial_burst), tokens + added)
