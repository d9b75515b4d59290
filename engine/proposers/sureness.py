"""How sure a drafter is of its tokens, and where a draft ends because it is not.

A draft of its verifier's own weights is wrong where the verifier's choice was a close one, and
hardly anywhere else. How close it was is told by the drafter's own logits: greedily by the lead of
the likeliest token on the next, and where it draws with the verifier's random number by how much of
the probability lies between that number and what would choose another token. How often choices as
close as that were right is learned, as other drafters are otherwise.

So a draft has a chance to be right up to here: the product of its tokens'. One more token brings
that much of a token, and takes as long as a drafted one does; as long as that is more than the
stream makes of the same time, the draft goes on. Sources: dynamic draft lengths by confidence are
in Li et al., "EAGLE-2" (2024); here the measure of it is the drawn number's, and the threshold is
the stream's own pace.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

LEADS = (0.05, 0.1, 0.25, 0.5, 1.0)
MARGINS = (0.003, 0.01, 0.02, 0.05, 0.1)
"""Borders of what counts as equally close: natural logarithms, and shares of the probability."""
EXPECTED = (0.6, 0.85, 0.95, 0.98, 0.99, 0.995)
EXPECTED_WEIGHT = 4
"""So many tokens are as much as is expected."""
REMEMBERED = 256
"""Tokens of a kind; verifiers and texts change."""
BLOCKS = 5
"""The latest: one may have been followed by a pause."""


def kind_of(margin: float, *, is_drawn: bool) -> int:
    """Among choices that are as close as one by `margin`."""
    if is_drawn:
        return len(EXPECTED) + bisect_right(MARGINS, margin)
    return bisect_right(LEADS, margin)


class Sureness:
    """Of one model's drafts, how often they were right, by kind."""

    def __init__(self) -> None:
        self._right = [chance * EXPECTED_WEIGHT for chance in (*EXPECTED, *EXPECTED)]
        self._drafted = [float(EXPECTED_WEIGHT)] * len(self._right)

    def chance(self, kind: int) -> float:
        """That a token of it is right, if all before it are."""
        return self._right[kind] / self._drafted[kind]

    def seen(self, kind: int, *, is_right: bool) -> None:
        """That one was."""
        if self._drafted[kind] >= REMEMBERED:
            self._drafted[kind] /= 2
            self._right[kind] /= 2
        self._drafted[kind] += 1
        self._right[kind] += is_right


class DraftedTokens:
    """What one session drafted last, until it is seen which of it is right."""

    def __init__(self, sureness: Sureness) -> None:
        self._sureness = sureness
        self._coming: deque[tuple[int, int | None]] = deque()

    def expect(self, assumed: Sequence[int], drafted: Sequence[int], kinds: Sequence[int]) -> None:
        """Behind the history come these, in place of what was expected before."""
        self._coming = deque((token, None) for token in assumed)
        self._coming.extend(zip(drafted, kinds, strict=True))

    def committed(self, token_ids: Sequence[int]) -> None:
        """These came."""
        for token_id in token_ids:
            if not self._coming:
                return
            expected, kind = self._coming.popleft()
            if kind is not None:
                self._sureness.seen(kind, is_right=expected == token_id)
            if expected != token_id:
                # Behind another token others would have been drafted.
                self._coming.clear()


class Latest:
    """Some numbers, of which the latest count: one that is odd does not."""

    def __init__(self) -> None:
        self._numbers: deque[float] = deque(maxlen=BLOCKS)

    def add(self, number: float) -> None:
        """The latest of them."""
        self._numbers.append(number)

    @property
    def median(self) -> float:
        """0 of none."""
        return statistics.median(self._numbers) if self._numbers else 0.0


class Worth:
    """What a drafted token takes of all streams of a model, as it sees them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rates = Latest()
        self._token_seconds = Latest()
        self._asked_at: float | None = None

    def asked(self, committed_count: int) -> None:
        """A session wants a draft that nobody made ahead, and has so many more tokens than before.

        Those of all sessions count: who drafts for one of them has the others wait.
        """
        now = self._clock()
        if self._asked_at is not None and committed_count > 0 and now > self._asked_at:
            self._rates.add(committed_count / (now - self._asked_at))
        self._asked_at = now

    def drafted(self, count: int, seconds: float) -> None:
        """So many more tokens of a draft took so long."""
        if count:
            self._token_seconds.add(seconds / count)

    @property
    def least_chance(self) -> float:
        """Tokens that the streams make while one is drafted; 0 before anybody's second draft."""
        return self._rates.median * self._token_seconds.median
