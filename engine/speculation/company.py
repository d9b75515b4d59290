"""Whether drafts pay for all sessions together that one verifier serves at once.

A session alone finds out by itself what drafts win (`pace.py`). Beside others it cannot: a forward
of several sessions takes hardly longer than of one, while a drafter makes their drafts one after
the other, perhaps on the verifier's own cores; and what a session takes alone it only ever sees
beside the others' drafts. Each would keep drafting because the others do. So what all of them make
in a second is measured both ways, with drafts and without any, by the number of sessions, and the
better way is kept, and asked about again, after ever longer times while it stays the better one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

SETTLED_AFTER = {True: 2, False: 8}
"""Tokens a session, by whether all rest, that count for nothing: they were on their way."""
MEASURED_OVER = 12
"""Tokens a session that are measured then, and the least of all together, likewise."""
LEAST_MEASURED = {True: 32, False: 80}
CLEAR = 1.05
"""So many times as fast is faster; else whoever drafts for itself knows better."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 3.0, 768.0
REST_TOKENS = 32
"""That a session makes alone before it asks once more whether all rest."""


@dataclass(slots=True)
class _Level:
    """What so many sessions make, in tokens a second, by whether all rest."""

    rates: dict[bool, float] = field(default_factory=dict)
    rests: bool = False
    tried_again_at: float = 0.0
    wait: float = FIRST_WAIT_SECONDS


class Company:
    """The generations of one verifier that are under way. Belongs to one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._drafting_count = 0
        self._levels: dict[int, _Level] = {}
        self._rests = False
        # The window of time that is measured, and of how many sessions.
        self._size = 0
        self._unsettled = 0
        self._tokens = 0
        self._began = 0.0

    @property
    def rests(self) -> bool:
        """Whether nobody is to ask for drafts now."""
        return self._rests and self._count > 1

    def enter(self, *, drafts: bool) -> None:
        """One more generation, that chooses itself whether it `drafts`, or has no drafts."""
        self._count += 1
        self._drafting_count += drafts

    def leave(self, *, drafts: bool) -> None:
        """One of them has ended."""
        self._count -= 1
        self._drafting_count -= drafts

    def committed(self, token_count: int) -> None:
        """One of them made so many tokens."""
        if self._count < 2 or not self._drafting_count:
            self._size = 0
            return
        if abs(self._count - self._size) > max(1, self._size // 4) or not self._size:
            self._size = self._count
            self._begin(rests=self._known(self._count))
        if self._unsettled > 0:
            self._unsettled -= token_count
            if self._unsettled <= 0:
                self._began = self._clock()
            return
        self._tokens += token_count
        if self._tokens >= max(LEAST_MEASURED[self._rests], MEASURED_OVER * self._size):
            self._measured(self._tokens / max(1e-9, self._clock() - self._began))

    def _begin(self, *, rests: bool) -> None:
        self._rests = rests
        self._unsettled = SETTLED_AFTER[rests] * self._size
        self._tokens = 0

    def _known(self, count: int) -> bool:
        """Whether so many begin by resting: as they found, or as fewer do that found it."""
        own = self._levels.get(count)
        if own is not None:
            return own.rests
        tried = {size: level for size, level in self._levels.items() if len(level.rates) > 1}
        fewer = max((size for size in tried if size < count), default=0)
        if fewer and tried[fewer].rests:
            level = self._levels[count] = _Level(rests=True)
            level.tried_again_at = self._clock() + level.wait
            return True
        return False

    def _measured(self, rate: float) -> None:
        """A window is over."""
        level, now = self._levels.setdefault(self._size, _Level()), self._clock()
        level.rates[self._rests] = (rate + level.rates.get(self._rests, rate)) / 2
        if len(level.rates) < 2 and now >= level.tried_again_at:
            self._begin(rests=not self._rests)
            return
        if len(level.rates) > 1:
            was_tried = self._rests is not level.rests
            before, level.rests = level.rests, level.rates[True] > CLEAR * level.rates[False]
            if level.rests is not before:
                level.wait = FIRST_WAIT_SECONDS
                level.tried_again_at = now + level.wait
            elif was_tried:
                level.wait = min(2 * level.wait, LONGEST_WAIT_SECONDS)
                level.tried_again_at = now + level.wait
        is_due = now >= level.tried_again_at
        self._begin(rests=level.rests is not is_due)
