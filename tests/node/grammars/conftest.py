"""Fixtures of this room's tests: the shipped model's tokenizer, and guides of it.

tokenizer   where the shipped model's tokenizer is
codec       the same for text
guide_of    guide_of(kind, text): a guide that has taken nothing
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kakeya.text import TextCodec
from kakeya_fleet.engine.models.digests import tokenizer_digest
from kakeya_fleet.engine.models.model_folder import vocabulary_size
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.grammars import Grammars
from kakeya_fleet.node.grammars.matcher_guide import MatcherGuide
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer

TINY = Path(__file__).parents[3] / "engine" / "shipped" / "tiny"

GuideOf = Callable[[str, str], Awaitable[MatcherGuide]]


@pytest.fixture(scope="session")
def tokenizer() -> ModelTokenizer:
    return ModelTokenizer("tiny", "tiny", tokenizer_digest(TINY), vocabulary_size(TINY))


@pytest.fixture(scope="session")
def codec() -> TextCodec:
    return TextCodec.from_folder(TINY)


@pytest.fixture
def guide_of(tokenizer: ModelTokenizer) -> GuideOf:
    grammars = Grammars()

    async def guide(kind: str, text: str) -> MatcherGuide:
        return await grammars.guide(Grammar(GrammarKind(kind), text), tokenizer)

    return guide


@pytest.fixture(scope="session", name="tokenizer_digest")
def digest(tokenizer: ModelTokenizer) -> str:
    return tokenizer.digest
