"""Facts in pages of text, and a question for each at the end: which are recalled word for word.

In the published model's own language; `scripts.eval.recall_task` is in the shipped one's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kakeya.text import TextCodec

PLACES = (
    *("harbour", "library", "bakery", "museum", "station", "garden", "theatre", "observatory"),
    *("market", "chapel", "castle", "school", "hospital", "lighthouse", "workshop", "archive"),
)
ANSWER_TOKENS = 10
"""More than five digits take."""


@dataclass(frozen=True, slots=True)
class TextNeedle:
    """A prompt, and what has to follow it."""

    prompt: tuple[int, ...]
    answer: str


def text_needles(
    codec: TextCodec, filler: str, count: int, tokens: int, seed: int
) -> Iterator[TextNeedle]:
    """`count` prompts of about so many tokens, their facts at even depths; the seed gives them."""
    rng = random.Random(seed)
    ids = codec.encode(filler)
    for number in range(count):
        place, code = rng.choice(PLACES), str(rng.randrange(10_000, 100_000))
        fact = f"\nThe code of the {place} is {code}.\n"
        question = f"\nWhat is the code of the {place}? The code of the {place} is"
        room = tokens - len(codec.encode(fact + question))
        first = rng.randrange(len(ids) - room)
        depth = room * (2 * number + 1) // (2 * count)
        before, behind = ids[first : first + depth], ids[first + depth : first + room]
        text = codec.decode(before) + fact + codec.decode(behind) + question
        yield TextNeedle(tuple(codec.encode(text)), code)


def is_hit(codec: TextCodec, answer: str, answered: Sequence[int]) -> bool:
    """Whether what was answered begins with the code `answer`, and has no digit more."""
    text = codec.decode(answered).strip()
    return text.startswith(answer) and not text[len(answer) :][:1].isdigit()
