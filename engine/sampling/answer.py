"""What one generation has said so far, as far as its next choices depend on it.

A generation that goes on elsewhere has said what it said before: its choices are a function of
the history, of where in the history it began, and of what it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.contracts.guide import Guide

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Answer:
    """The tokens that one generation has committed. Used by one thread at a time.

    `counts` [vocabulary] says how often each id is among them. `guide`, where a grammar holds
    the generation, has taken them; `stop_ids` end it, and are allowed where the grammar may end.
    """

    def __init__(
        self,
        vocabulary_size: int,
        said: Sequence[int] = (),
        guide: Guide | None = None,
        stop_ids: frozenset[int] = frozenset(),
    ) -> None:
        """`said` was committed before, on another node; `guide` has taken it."""
        self._guide = guide
        self._stop_ids = stop_ids
        self._stops = np.array(sorted(stop_ids), np.int64)
        self._counts = np.bincount(np.asarray(said, np.int64), minlength=vocabulary_size)

    @property
    def is_complete(self) -> bool:
        """Whether a grammar allows nothing more: the generation ends without a stop id."""
        return self._guide is not None and self._guide.is_complete

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each id was said, to be read only, good until the next token."""
        return self._counts

    def allowed(self) -> NDArray[np.bool_] | None:
        """Which ids may come next; None for all. Raises `GrammarRefused`."""
        if self._guide is None:
            return None
        allowed = self._guide.allowed()
        if self._guide.may_end:
            allowed[self._stops] = True
        return allowed

    def fitting(self, draft: Sequence[int]) -> int:
        """How many tokens of `draft`, from the first on, may be what comes next.

        A stop id where the grammar may end is the last of them.
        """
        guide = self._guide
        if guide is None:
            return len(draft)
        count = guide.fitting(draft)
        if count == len(draft) or draft[count] not in self._stop_ids:
            return count
        guide.take(draft[:count])
        ends = guide.may_end and not guide.is_complete
        guide.take_back(count)
        return count + ends

    def forced(self, most: int) -> list[int]:
        """At most so many ids that a grammar forces; a token that the model chooses follows."""
        if self._guide is None or most < 1:
            return []
        return self._guide.forced()[:most]

    def take(self, token_ids: Sequence[int]) -> None:
        """Goes on by what was chosen, but for a stop id, behind which nothing follows."""
        for token_id in token_ids:
            self._counts[token_id] += 1
        if self._guide is not None:
            self._guide.take(token_ids)

    def take_back(self, token_ids: Sequence[int]) -> None:
        """Goes back by the latest tokens, which were taken."""
        for token_id in token_ids:
            self._counts[token_id] -= 1
        if self._guide is not None:
            self._guide.take_back(len(token_ids))
