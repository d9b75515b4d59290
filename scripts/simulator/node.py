"""One simulated process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kakeya_fleet.fleet.membership.events import CloneFound
from kakeya_fleet.fleet.membership.state import Membership


@dataclass(slots=True)
class SimulatedNode:
    """`skew_seconds` is what its wall clock is ahead; `waiting` is what reached it while frozen."""

    node_id: str
    membership: Membership
    skew_seconds: float = 0.0
    is_dead: bool = False
    is_frozen: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    clones_found: list[CloneFound] = field(default_factory=list)
    skipped_count: int = 0

    def do(self, action: Callable[[], None]) -> None:
        """What happens at the node: at once, after its freeze, or never."""
        if self.is_frozen:
            self.waiting.append(action)
        elif not self.is_dead:
            action()

    def freeze(self) -> None:
        """The process stops (SIGSTOP)."""
        self.is_frozen = True

    def thaw(self) -> None:
        """The process goes on (SIGCONT) with all that waited, in the order in which it came."""
        self.is_frozen = False
        waiting, self.waiting = self.waiting, []
        for action in waiting:
            action()
