"""How far this node trusts its own timing (Lifeguard's local health).

A node that lags, or whose helpers fall silent, is likely the slow one itself:
it stretches its own timeouts instead of accusing others.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_STRETCH = 8
MAX_LAG_SECONDS = 0.25


@dataclass(slots=True)
class Awareness:
    """`lag` counts late ticks, `silence` helpers that did not answer."""

    lag: int = 0
    silence: int = 0

    @property
    def stretch(self) -> float:
        """What own timeouts are multiplied by, 1 to 8."""
        return float(min(MAX_STRETCH, 1 + self.lag + self.silence))

    def ticked(self, late_seconds: float) -> bool:
        """Notes a tick; whether it came more than 250 ms late.

        Each 250 ms of lateness adds one, each tick in time takes one away.
        """
        if late_seconds > MAX_LAG_SECONDS:
            # Bounded before the conversion: a laptop may have slept for days.
            steps = int(min(late_seconds / MAX_LAG_SECONDS, MAX_STRETCH))
            self.lag = min(MAX_STRETCH - 1, self.lag + steps)
            return True
        self.lag = max(0, self.lag - 1)
        return False

    def helpers_silent(self, count: int) -> None:
        """Notes helpers that answered neither that they reached nor that they did not."""
        self.silence = min(MAX_STRETCH - 1, self.silence + count)

    def answered(self) -> None:
        """Notes an exchange that was answered in time."""
        self.silence = max(0, self.silence - 1)
