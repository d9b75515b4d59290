"""A terminal that is written to piece by piece, and never cuts a word."""

from __future__ import annotations

import random
import textwrap

import pyte
import pytest

from kakeya_fleet.node.cli.terminal.word_wrap import WordWrap

WIDTH = 24
TEXT = (
    "The sky is blue because of a process called Rayleigh scattering, which is natural.\n\n"
    "A line of just twenty-4.\nAnd one that ends on the edge and goes on behind it."
)


def shown(text: str, pieces: random.Random | None = None) -> list[str]:
    """The lines of a terminal to which the text is written, whole or in such pieces."""
    screen = pyte.Screen(WIDTH, 60)
    screen.set_mode(pyte.modes.LNM)
    stream, wrap = pyte.Stream(screen), WordWrap(lambda: WIDTH)
    while text:
        count = pieces.randint(1, 7) if pieces else len(text)
        stream.feed(wrap.shown(text[:count]))
        text = text[count:]
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


def test_words_stay_whole_however_they_come() -> None:
    expected = [
        line for paragraph in TEXT.split("\n") for line in textwrap.wrap(paragraph, WIDTH) or [""]
    ]
    assert shown(TEXT) == expected
    for seed in range(20):
        assert shown(TEXT, random.Random(seed)) == expected, seed


CODE = "```\nx = a_long_call(of_it, and_more)\n```\nAfter it words are folded again."
CODES_LINES = ["```", "x = a_long_call(of_it, a", "nd_more)", "```"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("see " + "a" * 30, ["see", "a" * WIDTH, "a" * 6]),
        ("wide 日本語の文字で書いた文 end", ["wide", "日本語の文字で書いた文", "end"]),
        (CODE, [*CODES_LINES, "After it words are", "folded again."]),
        ("| one | two | three | four |", ["| one | two | three | fo", "ur |"]),
    ],
)
def test_what_is_longer_than_a_line_and_code_are_left_to_the_terminal(
    text: str, lines: list[str]
) -> None:
    assert shown(text) == lines
