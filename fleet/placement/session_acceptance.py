"""Acceptance of a pair over sessions: what the next one may expect.

Sessions count, not tokens: one long session says what its own text was, several
say how texts differ. With a_i of t_i compared tokens accepted in session i:

    r_i  = a_i / t_i
    w_i  = min(1, t_i / FULL_WEIGHT_TOKENS)
    rate = sum(w_i r_i) / sum(w_i)
    low, high = the 0.1 and 0.9 quantiles of the r_i, weighted by the w_i

so that about four of five sessions lie between low and high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.views.node_view import MeasuredAcceptance

# Compared tokens from which a session counts whole: about as many as a trial compares that is
# lost. What is drafted for no longer, since it does not pay, is to be known all the same.
FULL_WEIGHT_TOKENS = 16.0
LOW_QUANTILE = 0.1
HIGH_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class SessionAcceptance:
    """What one session measured of a pair; `tried` and `accepted` may be decayed counts."""

    drafted_count: int = 0
    tried: float = 0.0
    accepted: float = 0.0

    @property
    def rate(self) -> float:
        """Share of the compared tokens that were accepted; there must have been some."""
        return self.accepted / self.tried

    @property
    def weight(self) -> float:
        """What it counts for, 0 to 1."""
        return min(1.0, self.tried / FULL_WEIGHT_TOKENS)


def over_sessions(sessions: Sequence[SessionAcceptance]) -> MeasuredAcceptance:
    """The mean over sessions and its range; those that compared no token count nothing."""
    drafted_count = sum(session.drafted_count for session in sessions)
    counted = sorted(
        (session for session in sessions if session.tried > 0.0), key=lambda each: each.rate
    )
    weight = sum(session.weight for session in counted)
    if weight <= 0.0:
        return MeasuredAcceptance(0.0, drafted_count, 0.0, 0.0, 0.0)
    rate = sum(session.weight * session.rate for session in counted) / weight
    low = _quantile(counted, LOW_QUANTILE * weight)
    high = _quantile(counted, HIGH_QUANTILE * weight)
    return MeasuredAcceptance(rate, drafted_count, min(low, rate), max(high, rate), weight)


def _quantile(rising: Sequence[SessionAcceptance], weight: float) -> float:
    """The rate below which sessions of so much weight lie."""
    passed = 0.0
    for session in rising:
        passed += session.weight
        if passed >= weight:
            return session.rate
    return rising[-1].rate
