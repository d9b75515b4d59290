"""Grammars of ids without text, for the engine's suites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.errors import GrammarRefused

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rule = Callable[[tuple[int, ...]], Iterable[int]]
"""The ids that may follow what was said."""


def nothing(_said: tuple[int, ...]) -> bool:
    return False


class RuleGuide:
    """A `Guide` that asks functions of what was taken, and keeps nothing else."""

    def __init__(
        self,
        vocabulary_size: int,
        rule: Rule,
        ends: Callable[[tuple[int, ...]], bool] = nothing,
        said: Iterable[int] = (),
    ) -> None:
        self.vocabulary_size = vocabulary_size
        self.rule = rule
        self.ends = ends
        self.said: list[int] = []
        self.take(list(said))

    @property
    def may_end(self) -> bool:
        return self.ends(tuple(self.said))

    @property
    def is_complete(self) -> bool:
        return self.may_end and not self.allowed().any()

    def allowed(self) -> NDArray[np.bool_]:
        allowed = np.zeros(self.vocabulary_size, np.bool_)
        allowed[list(self.rule(tuple(self.said)))] = True
        return allowed

    def forced(self) -> list[int]:
        ahead: list[int] = []
        while not self.ends((*self.said, *ahead)):
            (following, *others) = [*self.rule((*self.said, *ahead)), -1]
            if following < 0 or others != [-1]:
                break
            ahead.append(following)
        return ahead

    def fitting(self, token_ids: Sequence[int]) -> int:
        said = tuple(self.said)
        for count, token_id in enumerate(token_ids):
            if token_id not in self.rule((*said, *token_ids[:count])):
                return count
        return len(token_ids)

    def take(self, token_ids: Sequence[int]) -> None:
        if self.fitting(token_ids) < len(token_ids):
            raise GrammarRefused("as scripted")
        self.said += token_ids

    def take_back(self, count: int) -> None:
        if count:
            del self.said[-count:]


def third_of(vocabulary_size: int) -> RuleGuide:
    """A third of the ids may follow, another third behind each token and at each place."""

    def rule(said: tuple[int, ...]) -> Iterable[int]:
        first = (len(said) + sum(said[-2:])) % 3
        return range(first, vocabulary_size, 3)

    return RuleGuide(vocabulary_size, rule)


def these(vocabulary_size: int, texts: Sequence[Sequence[int]]) -> RuleGuide:
    """One of these texts."""
    whole = [tuple(text) for text in texts]

    def rule(said: tuple[int, ...]) -> Iterable[int]:
        return {text[len(said)] for text in whole if text[: len(said)] == said != text}

    return RuleGuide(vocabulary_size, rule, lambda said: said in whole)
