"""A `Guide` of llguidance's matcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.refusal_text import refusal_text

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KnownIds:
    """Ids of the model, 0 to `model_count` - 1; those that the library's tokenizer knows, 0 to
    `tokenizer_count` - 1, which may be fewer or more; and those of it that end a text.
    """

    model_count: int
    tokenizer_count: int
    ending: frozenset[int]


class MatcherGuide:
    """See `engine.contracts.guide.Guide`.

    The library's errors stay: a matcher that met one answers nothing any more.
    """

    def __init__(self, matcher: LLMatcher, known: KnownIds) -> None:
        """`matcher` is this guide's alone."""
        self._matcher = matcher
        self._vocabulary_size = known.model_count
        self._known_size = min(known.model_count, known.tokenizer_count)
        self._ending_ids = known.ending
        ending = [each for each in sorted(known.ending) if each < self._known_size]
        self._endings = np.array(ending, np.int64)

    @property
    def may_end(self) -> bool:
        """Whether what was taken is a whole text of the grammar."""
        return self._matcher.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether it is one, and nothing can follow."""
        return self._matcher.is_stopped() and self._matcher.is_accepting()

    def allowed(self) -> NDArray[np.bool_]:
        """Which ids may follow, [vocabulary]; the caller's own. Raises `GrammarRefused`."""
        allowed = np.zeros(self._vocabulary_size, np.bool_)
        # One byte an id, 0 for what is not allowed.
        mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)
        if self._matcher.is_error():
            raise GrammarRefused(
                f"the grammar costs more than its bounds: {refusal_text(self._matcher.get_error())}"
            )
        np.not_equal(mask[: self._known_size], 0, out=allowed[: self._known_size])
        allowed[self._endings] = False
        return allowed

    def forced(self) -> list[int]:
        """Ids that follow whatever a model says, as far as that is easily known; often none."""
        forced = self._matcher.compute_ff_tokens()
        return forced[: self._until_strange(forced)]

    def fitting(self, token_ids: Sequence[int]) -> int:
        """How many of `token_ids`, from the first on, may follow one after the other."""
        known = self._until_strange(token_ids)
        return self._matcher.validate_tokens(list(token_ids[:known])) if known else 0

    def take(self, token_ids: Sequence[int]) -> None:
        """Goes on by `token_ids`. Raises `GrammarRefused` for one that is not allowed."""
        if self._matcher.is_error():
            return
        known = self._until_strange(token_ids)
        count = self._matcher.try_consume_tokens(list(token_ids[:known])) if known else 0
        # A token that is allowed may be the one that costs too much.
        if count < len(token_ids) and not self._matcher.is_error():
            raise GrammarRefused(
                f"the grammar does not allow token {token_ids[count]}, {count + 1} behind what was"
                " said before"
            )

    def take_back(self, count: int) -> None:
        """Goes back by the latest `count` ids."""
        if count and not self._matcher.is_error():
            self._matcher.rollback(count)

    def _until_strange(self, token_ids: Sequence[int]) -> int:
        """How many come before one that the library does not know, or that ends texts."""
        for count, token_id in enumerate(token_ids):
            if token_id >= self._known_size or token_id in self._ending_ids:
                return count
        return len(token_ids)
