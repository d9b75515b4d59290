"""What outlives a generation: the judgement of one session's proposer."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.hedging import RoundTrips
from kakeya_fleet.engine.speculation.pace import Pace


@dataclass(slots=True)
class SpeculationState:
    """Breaker, pace and latest round trips of a pair; a session's generations get the same one."""

    breaker: Breaker = field(default_factory=Breaker)
    pace: Pace = field(default_factory=Pace)
    round_trips: RoundTrips = field(default_factory=RoundTrips)

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the session decodes alone now; None when it does not."""
        if self.breaker.opened_by is not None:
            return DropReason(self.breaker.opened_by.value)
        return DropReason.SLOWER_THAN_ALONE if self.pace.dropped else None
