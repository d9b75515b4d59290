"""Whether drafts pay for all sessions together that one verifier serves at once.

A session alone finds out by itself what drafts win (`pace.py`). Beside others it cannot: a forward
of several sessions takes hardly longer than of one, while drafts take a drafter's time, perhaps on
the verifier's own cores; and what a session takes alone it only ever sees beside the others'
drafts. Each would keep drafting because the others do. So what all of them make in a second is
measured both ways, with drafts and without any, by the number of sessions. They begin without,
which is soon known and hardly differs among texts; drafts are tried, kept while they make more, and
tried again when that may have changed: after ever longer times, and so seldom that what trials cost
stays below `TRIAL_SHARE` of the time.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

SETTLED_AFTER = {True: 2, False: 24}
"""Tokens a session, by whether all rest, that count for nothing: they were on their way. With
drafts a drafted block a session is enough, before which streams open and prompts are read; or the
time in which they would have made as many at rest."""
MEASURED_OVER = {True: 12, False: 8}
"""Tokens a session that are measured then, and the least of all together, likewise."""
LEAST_MEASURED = {True: 48, False: 80}
REMEMBERED_WINDOWS = 5
"""Their median counts: in one of them a prompt may have been read."""
TRIAL_WINDOWS = 2
"""So often is measured what is better, before it is believed."""
CLEAR = 1.1
"""So many times as fast as at rest they are to be with drafts that are taken up; these go on while
they are faster at all."""
LOST = 1.25
"""A trial ends early that has taken so many times as long as what is kept would have."""
TRIAL_SHARE = 0.005
CROWD_SECONDS = 10.0
"""For so long a crowd that was better off at rest is thought to come again."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 3.0, 768.0


@dataclass(slots=True)
class _Level:
    """What so many sessions make, in tokens a second, by whether all rest."""

    _rates: dict[bool, deque[float]] = field(default_factory=dict)
    rests: bool = True
    tried_again_at: float = 0.0
    wait: float = FIRST_WAIT_SECONDS

    def seen(self, rate: float, *, rests: bool) -> None:
        """That they made so much of it."""
        self._rates.setdefault(rests, deque(maxlen=REMEMBERED_WINDOWS)).append(rate)

    def rate(self, *, rests: bool) -> float:
        """What they make; 0 before it was seen."""
        return statistics.median(self._rates[rests]) if rests in self._rates else 0.0

    def keep(self, now: float, *, rests: bool) -> None:
        """The better way from now on."""
        self.rests = rests
        self.wait = FIRST_WAIT_SECONDS
        self.tried_again_at = now + self.wait

    def lose(self, now: float, lost_seconds: float) -> None:
        """The other way was tried once more, and was not better."""
        self.wait = min(2 * self.wait, LONGEST_WAIT_SECONDS)
        self.tried_again_at = now + max(self.wait, lost_seconds / TRIAL_SHARE)


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
        self._undrafted = 0
        self._tokens = 0
        self._began = 0.0
        # Since when there are no two of whom one would draft.
        self._alone_since: float | None = 0.0
        # The windows of the trial that goes on, and when it began.
        self._trial_began = 0.0
        self._trial_windows = 0
        self._trial_tokens = 0
        self._trial_seconds = 0.0

    @property
    def rests(self) -> bool:
        """Whether nobody is to ask for drafts now."""
        return self._rests and self._count > 1

    @property
    def receives_resting(self) -> bool:
        """Whether one who enters now is not to prepare for any."""
        if not self._rests or self._alone_since is None:
            return self._rests
        return self._clock() - self._alone_since < CROWD_SECONDS

    def enter(self, *, drafts: bool) -> None:
        """One more generation, that chooses itself whether it `drafts`, or has no drafts."""
        self._count += 1
        self._drafting_count += drafts

    def leave(self, *, drafts: bool) -> None:
        """One of them has ended."""
        self._count -= 1
        self._drafting_count -= drafts
        if not self._is_crowd and self._alone_since is None:
            self._alone_since = self._clock()

    def committed(self, token_count: int, *, drafted: bool) -> None:
        """One of them made so many tokens, of a draft or without."""
        if not self._is_crowd:
            return
        if self._alone_since is not None:
            # Between two answers of one of them another is alone for a moment.
            paused, self._alone_since = self._clock() - self._alone_since, None
            self._began += paused
            self._trial_began += paused
        if not self._size or abs(self._count - self._size) > max(1, self._size // 4):
            self._size = _level_of(self._count)
            self._begin(rests=self._level().rests)
        level, now = self._levels[self._size], self._clock()
        kept = level.rate(rests=level.rests)
        if self._unsettled > 0:
            self._unsettled -= token_count
            self._undrafted -= drafted
            is_late = (now - self._trial_began) * kept > SETTLED_AFTER[self._rests] * self._size
            if self._unsettled <= 0 or (not self._rests and (self._undrafted <= 0 or is_late)):
                self._unsettled, self._began = 0, now
            return
        self._tokens += token_count
        wanted = max(LEAST_MEASURED[self._rests], MEASURED_OVER[self._rests] * self._size)
        seconds = max(1e-9, now - self._began)
        is_lost = self._rests is not level.rests and seconds * kept > LOST * wanted
        if self._tokens >= wanted or is_lost:
            self._measured(level, seconds)

    @property
    def _is_crowd(self) -> bool:
        return self._count > 1 and self._drafting_count > 0

    def _level(self) -> _Level:
        """Of now.

        The more sessions share a forward the less drafts win: more than those who were found to be
        better off at rest are so too, until these try again, and fewer than those who draft draft.
        """
        level = self._levels.get(self._size)
        if level is None:
            level = self._levels[self._size] = _Level()
            known = [size for size, each in self._levels.items() if each.rate(rests=False)]
            fewer = max((size for size in known if size < self._size), default=0)
            more = min((size for size in known if size > self._size), default=0)
            if fewer and self._levels[fewer].rests:
                level.wait = self._levels[fewer].wait
                level.tried_again_at = self._levels[fewer].tried_again_at
            elif more and not self._levels[more].rests:
                level.rests = False
        return level

    def _begin(self, *, rests: bool) -> None:
        self._rests = rests
        self._unsettled, self._undrafted = SETTLED_AFTER[rests] * self._size, self._size
        self._tokens = 0
        self._trial_began = self._clock()
        self._trial_windows, self._trial_tokens, self._trial_seconds = 0, 0, 0.0

    def _measured(self, level: _Level, seconds: float) -> None:
        """A window is over that took so long."""
        now = self._clock()
        if self._rests is not level.rests:
            self._tried(level, now, seconds)
            return
        level.seen(self._tokens / seconds, rests=level.rests)
        resting, drafting = level.rate(rests=True), level.rate(rests=False)
        if not level.rests and resting > drafting:
            # What sessions make at rest hardly changes with what they say.
            level.keep(now, rests=True)
            self._begin(rests=True)
        elif now >= level.tried_again_at:
            self._begin(rests=not level.rests)
        else:
            self._go_on(now)

    def _tried(self, level: _Level, now: float, seconds: float) -> None:
        """A window of the way that is not kept is over."""
        self._trial_windows += 1
        self._trial_tokens += self._tokens
        self._trial_seconds += seconds
        rate, kept = self._trial_tokens / self._trial_seconds, level.rate(rests=level.rests)
        is_better = rate > CLEAR * kept if level.rests else rate > kept
        if is_better and self._trial_windows < TRIAL_WINDOWS:
            self._go_on(now)
            return
        level.seen(rate, rests=not level.rests)
        if is_better:
            level.keep(now, rests=not level.rests)
            self._go_on(now)
        else:
            level.lose(now, (now - self._trial_began) * (1.0 - rate / kept))
            self._begin(rests=level.rests)

    def _go_on(self, now: float) -> None:
        self._tokens, self._began = 0, now


def _level_of(count: int) -> int:
    """1, 2, 3, 4, 6, 8, 12, 16, ...: of so many what was found of about as many holds."""
    power = 1 << (count.bit_length() - 1)
    return power + power // 2 if count >= power + power // 2 else power
