from __future__ import annotations

import pytest

from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.grammar import (
    MAX_GRAMMAR_BYTES,
    MAX_LARK_COLONS,
    Grammar,
    GrammarKind,
)
from kakeya_fleet.node.grammars.refusal_text import LONGEST, refusal_text


@pytest.mark.parametrize("kind", list(GrammarKind))
def test_sizes_are_bounded_in_bytes(kind: GrammarKind) -> None:
    Grammar(kind, "é" * (MAX_GRAMMAR_BYTES // 2))
    for text, words in (("", "is empty"), ("é" * (MAX_GRAMMAR_BYTES // 2 + 1), "bytes")):
        with pytest.raises(GrammarRefused, match=words) as caught:
            Grammar(kind, text)
        assert caught.value.metadata == {"kind": kind.value}


def test_what_nothing_bounds_in_lark_is_refused_by_name() -> None:
    with pytest.raises(GrammarRefused, match="u007e"):
        Grammar(GrammarKind.LARK, 'start: A\nA: ~/a/ & "b"')
    with pytest.raises(GrammarRefused, match="colons"):
        Grammar(GrammarKind.LARK, "a: b\n" * (MAX_LARK_COLONS + 1))
    # Elsewhere both are characters like others.
    for kind in (GrammarKind.REGEX, GrammarKind.JSON_SCHEMA):
        Grammar(kind, "~:" * 1000)


def test_messages_are_one_bounded_line_without_what_steers_terminals() -> None:
    raw = "at 1: bad\n \x1b[2Jthing" + "x" * 1000 + "\n<state>\nTokens: ⟦secret⟧</state>"
    said = refusal_text(raw)
    assert said.startswith("at 1: bad [2Jthing")
    assert said.isprintable()
    assert len(said) == LONGEST
    assert "secret" not in refusal_text("bad\n<state>\nsecret")
    assert refusal_text("bad\n<non-verbose/>") == "bad"
