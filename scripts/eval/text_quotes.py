"""Answers of hundreds of tokens, and parts of them that are begun again, to be said on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from scripts.eval.text_sides import Side, continued

TEMPERATURE = 0.7
CUE = 12
"""Tokens of a part that are said again."""
WHOLE = 24
"""Tokens of it that follow."""
LEFT = "just outside the window"
PROMPT = "of the prompt"


@dataclass(frozen=True, slots=True)
class Quote:
    """A part that is begun again behind a text."""

    where: str
    cue: tuple[int, ...]
    follows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuotedText:
    """A prompt and the answer to it, and parts of both."""

    tokens: tuple[int, ...]
    quotes: tuple[Quote, ...]


def quoted_texts(
    verifier: Verifier,
    side: Side,
    pages: Sequence[int],
    *,
    count: int,
    prompt: int,
    answer: int,
    window: int,
    seed: int,
) -> Iterator[QuotedText]:
    """So many prompts of real text, gone on from by `side` at a temperature."""
    rng = random.Random(seed)
    for number in range(count):
        first = rng.randrange(len(pages) - prompt)
        begun = list(pages[first : first + prompt])
        parameters = SamplingParameters(temperature=TEMPERATURE, seed=seed + number)
        with side.opened(prompt + answer) as cache:
            said = continued(verifier, cache, begun, answer, parameters)
        yield QuotedText(tuple(begun + said), quotes_of(begun + said, prompt, window))


def quotes_of(tokens: Sequence[int], prompt: int, window: int) -> tuple[Quote, Quote]:
    """The part that the window of the next token has just left, and one of the prompt."""
    return (
        _quote(LEFT, tokens, len(tokens) - window - CUE - WHOLE),
        _quote(PROMPT, tokens, prompt // 3),
    )


def _quote(where: str, tokens: Sequence[int], first: int) -> Quote:
    part = tuple(tokens[first : first + CUE + WHOLE])
    return Quote(where, part[:CUE], part[CUE:])
