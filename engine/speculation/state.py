"""What outlives a generation: the judgement of one session's proposer."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.pace import Pace


@dataclass(slots=True)
class SpeculationState:
    """Breaker and pace of one pair; pass the same one to a session's generations."""

    breaker: Breaker = field(default_factory=Breaker)
    pace: Pace = field(default_factory=Pace)

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the session decodes alone now; None when it does not."""
        if self.breaker.opened_by is not None:
            return DropReason(self.breaker.opened_by.value)
        return DropReason.SLOWER_THAN_ALONE if self.pace.dropped else None
