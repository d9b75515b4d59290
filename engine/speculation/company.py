"""Whether drafts pay for all sessions together that one verifier serves at once.

A session alone finds out by itself what drafts win (`pace.py`). Beside others it cannot: a forward
of several sessions takes hardly longer than of one, while drafts take a drafter's time, perhaps on
the verifier's own cores; and what a session takes alone it only ever sees beside the others'
drafts. Each would keep drafting because the others do. So what all of them make in a second is
measured both ways, with drafts and without any, by the number of sessions. They begin without,
which is soon known and hardly differs among texts; drafts are tried, kept while they make more, and
tried again when that may have changed: after ever longer times, and so seldom that what trials cost
stays below `TRIAL_SHARE` of the time. A trial costs the same when the crowd changes before it told
anything.

More sessions make little more with drafts than fewer do, and much more at rest. So a larger crowd
is likely to lose where fewer rest, or made no more with drafts than it makes at rest: what its
trial may cost is saved up first.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kakeya_fleet.engine.speculation.alone_book import AloneBook

SETTLED_AFTER = 8
"""Tokens a session at rest that count for nothing: prompts were read and drafts on their way."""
MEASURED_OVER = {True: 24, False: 8}
LEAST_MEASURED = 80
"""Tokens a session that are measured then, by whether all rest; the least of all together."""
REMEMBERED_WINDOWS = 5
"""Their median counts: in one of them a prompt may have been read."""
TRIAL_WINDOWS = 2
"""So often in a row is measured what is better, before it is believed."""
MOST_TRIAL_WINDOWS = 8
"""Behind which neither is."""
CLEAR = 1.1
"""So many times as fast as at rest they are to be with drafts that are taken up; these go on while
they are faster at all."""
LOST_SECONDS = 0.3
"""A trial ends early that has cost what would have been made in so long. A few, who lose little,
have the time to find who drafts best for each."""
TRIAL_SHARE = 0.005
"""Of the time in which several answer."""
CROWD_SECONDS = 10.0
"""For so long a crowd that was better off at rest is thought to come again."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 3.0, 768.0


@dataclass(slots=True)
class _Level:
    """What so many sessions make, in tokens a second, by whether all rest."""

    _rates: dict[bool, deque[float]] = field(default_factory=dict)
    rests: bool = True
    is_tried: bool = False
    """Whether a trial told which is better."""
    was_begun: bool = False
    """Whether there was a trial, if only one that was broken off."""
    tried_again_at: float = 0.0
    wait: float = FIRST_WAIT_SECONDS

    def seen(self, rate: float, *, rests: bool) -> None:
        """That they made so much of it."""
        self._rates.setdefault(rests, deque(maxlen=REMEMBERED_WINDOWS)).append(rate)

    def rate(self, *, rests: bool) -> float:
        """What they make; 0 before it was seen."""
        return statistics.median(self._rates[rests]) if rests in self._rates else 0.0

    def forget(self, *, rests: bool) -> None:
        """What was seen of a way before."""
        self._rates.pop(rests, None)

    def keep(self, now: float, *, rests: bool) -> None:
        """The better way from now on."""
        self.rests, self.is_tried = rests, True
        self.wait = FIRST_WAIT_SECONDS
        self.tried_again_at = now + self.wait

    def lose(self, now: float) -> None:
        """The other way was tried once more, and was not better."""
        self.is_tried = True
        self.wait = min(2 * self.wait, LONGEST_WAIT_SECONDS)
        self.tried_again_at = max(self.tried_again_at, now + self.wait)


class Company:
    """The generations of one verifier that are under way. Belongs to one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.alone = AloneBook(clock)
        self._count = 0
        self._drafting_count = 0
        self._levels: dict[int, _Level] = {}
        self._rests = False
        # The window of time that is measured, and of how many sessions.
        self._size = 0
        self._unsettled = 0
        self._tokens = 0
        self._began = 0.0
        # Since when there are no two of whom one would draft.
        self._alone_since: float | None = 0.0
        # Seconds that trials may cost, less than none where one is not paid for yet; until when
        # it is known what was saved.
        self._saved, self._saved_until = 0.0, 0.0
        # The windows of the trial that goes on, when it began, and all that was made since.
        self._trial_began = 0.0
        self._made = 0
        self._trial_windows = 0
        self._better_windows = 0

    @property
    def rests(self) -> bool:
        """Whether nobody is to ask for drafts now."""
        return self._rests and self._count > 1

    @property
    def is_one(self) -> bool:
        """Whether nobody else generates."""
        return self._count == 1

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

    def committed(self, token_count: int, seconds_ago: float = 0.0) -> None:
        """One of them made so many tokens, and is told of them now."""
        if not self._is_crowd:
            return
        now = self._clock()
        if self._alone_since is not None:
            # Between two answers of one of them another is alone for a moment.
            paused, self._alone_since = now - self._alone_since, None
            self._began += paused
            self._trial_began += paused
            self._saved_until = now
        self._saved = min(LOST_SECONDS, self._saved + TRIAL_SHARE * (now - self._saved_until))
        self._saved_until = now
        if self._is_another_size:
            if self._size and self._rests is not self._levels[self._size].rests:
                self._pay(self._levels[self._size], now)
            self._size = _level_of(self._count)
            self._begin(rests=self._level().rests)
        decided_at, level = now - seconds_ago, self._levels[self._size]
        self._made += token_count if decided_at > self._trial_began else 0
        if self._rests is not level.rests and self._lost_seconds(level, now) > LOST_SECONDS:
            self._lose(level, now)
            return
        if self._unsettled > 0:
            self._unsettled -= token_count
            if self._unsettled <= 0:
                self._began = now
            return
        if decided_at <= self._began:
            return
        self._tokens += token_count
        if self._tokens >= max(LEAST_MEASURED, MEASURED_OVER[self._rests] * self._size):
            self._measured(level, self._tokens / max(1e-9, now - self._began))

    @property
    def _is_another_size(self) -> bool:
        """Whether there are so many more or fewer that what is known of others holds."""
        return not self._size or abs(self._count - self._size) > max(1, self._size // 4)

    @property
    def _is_crowd(self) -> bool:
        return self._count > 1 and self._drafting_count > 0

    def _level(self) -> _Level:
        """Of now. The more share a forward the less drafts win: fewer than those who draft do."""
        level = self._levels.get(self._size)
        if level is None:
            known = [size for size, each in self._levels.items() if each.is_tried]
            more = min((size for size in known if size > self._size), default=0)
            level = self._levels[self._size] = _Level()
            level.rests = not more or self._levels[more].rests
        return level

    def _begin(self, *, rests: bool) -> None:
        self._rests = rests
        self._unsettled = SETTLED_AFTER * self._size if rests else 0
        self._tokens = self._made = 0
        self._trial_began = self._began = self._clock()
        self._trial_windows = self._better_windows = 0

    def _measured(self, level: _Level, rate: float) -> None:
        """A window is over, in which they made so much."""
        now = self._clock()
        if self._rests is not level.rests:
            self._tried(level, now, rate)
            return
        level.seen(rate, rests=level.rests)
        resting, drafting = level.rate(rests=True), level.rate(rests=False)
        if not level.rests and resting > drafting:
            # What sessions make at rest hardly changes with what they say.
            level.keep(now, rests=True)
            self._begin(rests=True)
        elif self._may_try(level, now):
            level.was_begun = True
            self._begin(rests=not level.rests)
        else:
            self._go_on(now)

    def _tried(self, level: _Level, now: float, rate: float) -> None:
        """A window of the way that is not kept is over."""
        self._trial_windows += 1
        kept = level.rate(rests=level.rests)
        is_better = rate > CLEAR * kept if level.rests else rate > kept
        self._better_windows = self._better_windows + 1 if is_better else 0
        if self._better_windows == TRIAL_WINDOWS:
            level.forget(rests=not level.rests)
            level.seen(rate, rests=not level.rests)
            level.keep(now, rests=not level.rests)
            self._go_on(now)
        elif self._trial_windows == MOST_TRIAL_WINDOWS:
            self._lose(level, now)
        else:
            self._go_on(now)

    def _lose(self, level: _Level, now: float) -> None:
        """The other way was not better."""
        self._pay(level, now)
        level.lose(now)
        self._begin(rests=level.rests)

    def _may_try(self, level: _Level, now: float) -> bool:
        """Whether the way is tried that is not kept."""
        if now < level.tried_again_at:
            return False
        if not self._is_promising(level):
            return self._saved >= LOST_SECONDS
        return not level.was_begun or self._saved >= 0.0

    def _is_promising(self, level: _Level) -> bool:
        """Whether drafts may win, as far as fewer sessions tell."""
        fewer = [size for size, each in self._levels.items() if size < self._size and each.is_tried]
        if not level.rests or not fewer:
            return True
        nearest = self._levels[max(fewer)]
        drafting = nearest.rate(rests=False)
        return not nearest.rests and drafting > level.rate(rests=True)

    def _pay(self, level: _Level, now: float) -> None:
        """A trial is over, or was broken off, that cost what could have been made meanwhile."""
        self._saved -= max(0.0, self._lost_seconds(level, now))
        level.tried_again_at = now + level.wait

    def _lost_seconds(self, level: _Level, now: float) -> float:
        """In which what was not made in the trial could have been, as it is kept."""
        return now - self._trial_began - self._made / level.rate(rests=level.rests)

    def _go_on(self, now: float) -> None:
        self._tokens, self._began = 0, now


def _level_of(count: int) -> int:
    """The nearest of 1, 2, 3, 4, 6, 8, 12, 16, ...: about as many make about as much."""
    power = 1 << (count.bit_length() - 1)
    quarters = 4 * count // power
    return power * (4, 6, 6, 8)[quarters - 4] // 4
