"""What a grammar lets a generation say: the engine asks for ids, and knows nothing of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Guide(Protocol):
    """A grammar, and how far into it one generation has come. Used by one thread at a time.

    Every answer is a function of the grammar and of the tokens that were taken, whatever was
    taken and taken back between. Ids that end a text are no part of a grammar: they are never
    allowed, fit nowhere and are not taken.

    A grammar that turns out to cost more than its bounds is lost: `allowed` raises
    `GrammarRefused` from then on, nothing fits, and taking does nothing.
    """

    @property
    def may_end(self) -> bool:
        """Whether what was taken is a whole text of the grammar."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether it is one, and nothing can follow."""
        ...

    def allowed(self) -> NDArray[np.bool_]:
        """Which ids may follow, [vocabulary]; the caller's own. Raises `GrammarRefused`."""
        ...

    def forced(self) -> list[int]:
        """Ids that follow whatever a model says, as far as that is easily known; often none.

        Raises nothing.
        """
        ...

    def fitting(self, token_ids: Sequence[int]) -> int:
        """How many of `token_ids`, from the first on, may follow one after the other."""
        ...

    def take(self, token_ids: Sequence[int]) -> None:
        """Goes on by `token_ids`. Raises `GrammarRefused` for one that is not allowed."""
        ...

    def take_back(self, count: int) -> None:
        """Goes back by the latest `count` ids."""
        ...
