"""Whether a text repeats itself with a short period.

A token is **looped** when some period p of 1 to `LONGEST_PERIOD` has held for the last
max(2 p, `LEAST_REPEATED`) tokens, each equal to the one p before it: the text has then
been said at least three times in a row. Any drafter guesses such text, so that
what is accepted of it predicts nothing of the next session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

LONGEST_PERIOD = 16
LEAST_REPEATED = 8


class LoopWatch:
    """Follows one session's committed tokens, oldest first."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=LONGEST_PERIOD)
        self._repeated = [0] * LONGEST_PERIOD
        """By period less one: tokens in a row that equal the one a period before."""

    def after(self, token_ids: Iterable[int]) -> bool:
        """Takes in the next tokens; whether the last of them is looped."""
        looped = False
        for token_id in token_ids:
            looped = self._after_one(token_id)
        return looped

    def _after_one(self, token_id: int) -> bool:
        looped = False
        for index, before in enumerate(reversed(self._latest)):
            if before != token_id:
                self._repeated[index] = 0
                continue
            self._repeated[index] += 1
            looped = looped or self._repeated[index] >= max(2 * (index + 1), LEAST_REPEATED)
        self._latest.append(token_id)
        return looped
