"""Retries of idempotent calls: how many, and after which pause."""

from __future__ import annotations

MAX_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class RetryBudget:
    """Bounds retries to a share of the calls, so that clients never storm a sick node.

    A call earns `earned_per_call`, a retry costs 1, at most `capacity` is kept:
    attempts <= (1 + earned_per_call) * calls + capacity, which from 1,000 calls on is at most
    1.1 times the calls.
    """

    def __init__(self, *, capacity: float = 10.0, earned_per_call: float = 0.09) -> None:
        self._capacity = capacity
        self._earned_per_call = earned_per_call
        self._tokens = capacity

    def earn(self) -> None:
        """Counts one call."""
        self._tokens = min(self._capacity, self._tokens + self._earned_per_call)

    def spend(self) -> bool:
        """Takes one retry; False when the budget is used up."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def pause_seconds(retry: int, chance: float) -> float:
    """Seconds to wait before the `retry`-th retry (from 0): chance * min(2, 0.1 * 2^retry).

    `chance` is uniform in 0 to 1, so that clients that failed together do not
    come back together.
    """
    longest: float = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**retry)
    return chance * longest
