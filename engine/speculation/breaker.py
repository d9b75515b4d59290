"""A circuit breaker for a proposer (Nygard, "Release It!", 2007).

closed --DEADLINE, UNREACHABLE, or a debt of 3 bad blocks--> open
open --cool-down over--> half-open: one draft may be asked for
half-open --well-formed draft--> closed
half-open --any fault--> open, with twice the cool-down, 30 s at most

A bad block is a debt of 1, of which each good one pays a quarter: a leaky bucket, so that a
proposer which alternates is shut out like one that is always bad. Until the debt is paid, the
last cool-down is not forgotten either: the next is twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kakeya_fleet.engine.errors import DraftFaultKind

BAD_BLOCKS_TO_OPEN = 3
PAID_BY_A_GOOD_BLOCK = 0.25
"""One bad block in five costs a round in five, which good drafts may be worth."""
FIRST_COOL_DOWN_SECONDS = 1.0
LONGEST_COOL_DOWN_SECONDS = 30.0

_OPENS_AT_ONCE = frozenset({DraftFaultKind.DEADLINE, DraftFaultKind.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether a proposer may be asked. A value: events return the next one.

    `debt` is in bad blocks. `opened_by` is the fault that opened it, None while closed;
    `retry_at` the time, in the caller's monotonic seconds, from which one draft may be
    tried, and `tried_until` the time until which that one may still be under way.
    """

    debt: float = 0.0
    opened_by: DraftFaultKind | None = None
    cool_down_seconds: float = 0.0
    retry_at: float = 0.0
    tried_until: float = 0.0

    @property
    def closed(self) -> bool:
        """Whether the proposer counts as sound."""
        return self.opened_by is None

    def allows(self, now: float) -> bool:
        """Whether a draft may be asked for: closed, or cooled down and not being tried."""
        return self.closed or now >= max(self.retry_at, self.tried_until)

    def after_asking(self, now: float, timeout: float) -> Breaker:
        """A draft is asked for, and waited for as long as `timeout` seconds."""
        return self if self.closed else replace(self, tried_until=now + timeout)

    def after_success(self) -> Breaker:
        """A well-formed draft came in time."""
        debt = self.debt - PAID_BY_A_GOOD_BLOCK
        return Breaker(debt, cool_down_seconds=self.cool_down_seconds) if debt > 0 else SOUND

    def after_fault(
        self, kind: DraftFaultKind, now: float, asked_at: float | None = None
    ) -> Breaker:
        """A draft failed that was asked for at `asked_at`, None for just now.

        One that was asked for before the breaker had cooled down is no trial, however late it
        fails: sessions that lose their drafts together are one fault, not a row of trials.
        """
        if not self.closed and (now if asked_at is None else asked_at) < self.retry_at:
            return self
        debt = self.debt + 1
        if self.closed and kind not in _OPENS_AT_ONCE and debt < BAD_BLOCKS_TO_OPEN:
            return Breaker(debt, cool_down_seconds=self.cool_down_seconds)
        cool_down = min(
            self.cool_down_seconds * 2 or FIRST_COOL_DOWN_SECONDS, LONGEST_COOL_DOWN_SECONDS
        )
        return Breaker(BAD_BLOCKS_TO_OPEN, kind, cool_down, now + cool_down)


SOUND = Breaker()
"""The breaker of a proposer of which nothing bad is known."""
