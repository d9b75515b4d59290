"""A grammar as a request states it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.engine.errors import GrammarRefused

MAX_GRAMMAR_BYTES = 64 * 1024
"""Of its text in UTF-8. What one makes a node compute grows with it."""
MAX_LARK_COLONS = 256
"""Each definition of a Lark grammar has one. Terminals that are made of terminals are expanded, so
that the time to refuse a chain of them grows with the square of its length."""
COMPLEMENT = "~"
"""In Lark, what an expression does not match: the one operation whose time and memory nothing
bounds, since it may need an automaton of exponential size at once."""

ANY_OBJECT = '{"type":"object"}'
"""The JSON schema of every JSON object."""


class GrammarKind(StrEnum):
    """What a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language of texts: JSON that fits a schema, what a regular expression matches whole, or
    what the rule `start` of a Lark grammar derives.

    Raises `GrammarRefused` for one that is empty, or larger than its bounds.
    """

    kind: GrammarKind
    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise self.refused("is empty")
        size = len(self.text.encode())
        if size > MAX_GRAMMAR_BYTES:
            raise self.refused(f"has {size:,} bytes, more than {MAX_GRAMMAR_BYTES:,}")
        if self.kind is GrammarKind.LARK and self.text.count(":") > MAX_LARK_COLONS:
            raise self.refused(f"has more than {MAX_LARK_COLONS} colons, one a definition")
        if self.kind is GrammarKind.LARK and COMPLEMENT in self.text:
            raise self.refused("has a ~: complements are not taken; for the sign write \\u007e")

    def refused(self, problem: str) -> GrammarRefused:
        """The error that says what is wrong with it."""
        return GrammarRefused(f"the {self.kind.value} {problem}", kind=self.kind.value)
