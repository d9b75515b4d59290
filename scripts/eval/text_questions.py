"""Texts with facts in them, and questions: by place, facts beside the one asked for, and words.

A text is read once; every question is asked behind it, of a fork. Beside each fact lies another
number of the same place, which is not asked for: what tells the two apart is in their sentence.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kakeya.text import TextCodec
from scripts.eval.text_needles import PLACES

DEPTHS = 5
FACT = "\nThe code of the {place} is {code}.\n"
DISTRACTOR = "\nThe {place} was opened to the public in the year {other}.\n"
PHRASINGS = (
    "\nWhat is the code of the {place}? The code of the {place} is",
    "\nQuestion: Which code belongs to the {place}?\nAnswer: The code is",
    "\nRemember that the code of the {place} is",
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked behind a text, and what has to follow it."""

    prompt: tuple[int, ...]
    answer: str
    phrasing: int
    depth: int
    """Of the fact, 0 to `DEPTHS` - 1 from the beginning on."""


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text of real pages with facts, and its questions."""

    tokens: tuple[int, ...]
    facts: int
    questions: tuple[Question, ...]


def asked_texts(
    codec: TextCodec, filler: Sequence[int], tokens: int, facts: Sequence[int], seed: int
) -> Iterator[AskedText]:
    """Of each number of facts `DEPTHS` texts of about so many tokens, questions included.

    They are parts of `filler`. Each fact comes once at every depth. The seed gives parts, places
    and numbers.
    """
    rng = random.Random(seed)
    for count in facts:
        for turn in range(DEPTHS):
            yield _asked_text(rng, codec, filler, tokens, count, turn)


def _asked_text(
    rng: random.Random, codec: TextCodec, filler: Sequence[int], tokens: int, count: int, turn: int
) -> AskedText:
    places = rng.sample(PLACES, count)
    codes = rng.sample(range(10_000, 100_000), count)
    depths = [(turn + number) % DEPTHS for number in range(count)]
    said = {
        depth: FACT.format(place=place, code=code)
        + DISTRACTOR.format(place=place, other=rng.randrange(1700, 2000))
        for place, code, depth in zip(places, codes, depths, strict=True)
    }
    asked = [phrasing.format(place=places[0]) for phrasing in PHRASINGS]
    taken = max(map(len, map(codec.encode, asked)))
    taken += sum(len(codec.encode(each)) for each in said.values())
    part = (tokens - taken) // DEPTHS
    first = rng.randrange(len(filler) - part * DEPTHS)
    words = "".join(
        codec.decode(filler[first + depth * part : first + (depth + 1) * part])
        + said.get(depth, "")
        for depth in range(DEPTHS)
    )
    questions = tuple(
        Question(tuple(codec.encode(text.format(place=place))), str(code), number, depth)
        for place, code, depth in zip(places, codes, depths, strict=True)
        for number, text in enumerate(PHRASINGS)
    )
    return AskedText(tuple(codec.encode(words)), count, questions)
