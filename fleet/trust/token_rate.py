"""How many tokens a minute: a bucket that fills as time goes, and may owe some."""

from __future__ import annotations

MINUTE = 60.0


class TokenBucket:
    """Holds a minute's tokens at most. Time is in seconds of any clock that never goes back.

    What is asked for is not known when work begins, so work begins while anything is left and
    is counted as it is done: the bucket then owes, and nothing begins until that is paid. So no
    prompt is too long for a key, and over any time it gets `per_minute` tokens a minute, and one
    minute's more.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def left(self, now: float) -> float:
        """Tokens that may be spent now; negative for what it owes."""
        self._left = min(
            float(self.per_minute), self._left + (now - self._at) * self.per_minute / MINUTE
        )
        self._at = now
        return self._left

    def spend(self, count: int, now: float) -> None:
        """So many were."""
        self._left = self.left(now) - count

    def owes_too_much(self, now: float) -> bool:
        """Whether work that runs is to end, too: it owes another minute's tokens."""
        return self.left(now) <= -self.per_minute

    def seconds_until_some(self, now: float) -> float:
        """Until a token can be spent; 0 when one can."""
        lacking = 1.0 - self.left(now)
        return max(0.0, lacking * MINUTE / self.per_minute)
