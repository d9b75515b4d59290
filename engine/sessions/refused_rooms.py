"""What was refused of a verifier's memory: it holds until something changes.

To find who gives way is to look at each session, 6 ms among 1,300, and whoever is refused may ask
again at once, with thousands of others: those who are served would wait for all of these looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.memory.refusals import Shortage
from kakeya_fleet.engine.sessions.session_record import KvBudget

HOLDS_SECONDS = 1.0
"""At most: after how long a session gives way changes with the verifier's pace. Nobody who is
refused is told to come back sooner."""
MOST_KEPT = 64
"""Of owners that are refused at the same time; all are looked for anew when there are more."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """So many bytes, of a budget as it was then; at `retry_at` the next session may give way."""

    needed_bytes: int
    budget_bytes: int
    used_bytes: int
    until: float
    retry_at: float

    def shortage(self, budget: KvBudget, needed: int, now: float) -> Shortage:
        """What is said to whoever asks for `needed` bytes now."""
        wait = max(1.0, self.retry_at - now)
        return Shortage(needed, budget.free_bytes, budget.nbytes, wait)


class RefusedRooms:
    """Seconds are those of the registry's clock, whose lock is held."""

    def __init__(self) -> None:
        self._kept: dict[tuple[KvBudget, str], _Refused] = {}

    def changed(self) -> None:
        """A session began or ended, or something that holds one did."""
        self._kept.clear()

    def shortage(self, budget: KvBudget, needed: int, owner: str, now: float) -> Shortage | None:
        """Why `owner` is refused `needed` bytes as it was; None where that is to be looked for."""
        known = self._kept.get((budget, owner))
        if (
            known is None
            or now >= known.until
            or needed < known.needed_bytes
            or (budget.nbytes, budget.used_bytes) != (known.budget_bytes, known.used_bytes)
        ):
            return None
        return known.shortage(budget, needed, now)

    def remember(
        self, budget: KvBudget, needed: int, owner: str, now: float, wait_seconds: float
    ) -> Shortage:
        """`owner` is refused: nobody could give way, and none will for `wait_seconds`."""
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        until = now + min(wait_seconds, HOLDS_SECONDS)
        refused = _Refused(needed, budget.nbytes, budget.used_bytes, until, now + wait_seconds)
        self._kept[budget, owner] = refused
        return refused.shortage(budget, needed, now)
