"""Stretches and tables of documents whose numbers are a report's: found, checked, written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Report = Mapping[str, Any]
README, FIGURES, FAULTS = "README.md", "docs/figures.md", "docs/faults.md"
DOCUMENTS = (README, FIGURES, FAULTS)
PLACE = "{}"
NUMBER = r"([\w+-](?:[\w.,+-]*\w)?)"
"""What stands in a place: a number, or a word of the report."""


_ROWS = re.compile(r"(?:\|.*\n)*")


class FigureDiffers(Exception):
    """A document does not say what its report says; the message has both."""


@lru_cache
def report(name: str) -> Report:
    """The report `benchmarks/NAME.json`, or at the path `NAME`. Raises `FileNotFoundError`."""
    path = ROOT / name if name.endswith(".json") else ROOT / "benchmarks" / f"{name}.json"
    found: Report = json.loads(path.read_bytes())
    return found


@dataclass(frozen=True)
class Said:
    """A stretch of a document, once in it: `words` with a place for each of the `values`."""

    document: str
    words: str
    report: str
    values: Callable[[Report], Sequence[str]]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds the stretch with whatever numbers, wherever its lines break."""
        pieces = [r"\s+".join(map(re.escape, _words(piece))) for piece in self.words.split(PLACE)]
        return re.compile(NUMBER.join(pieces))

    def check(self, text: str) -> tuple[int, int]:
        """Where it stands in `text`. Raises `FigureDiffers`."""
        found = self._found(text)
        said, true = list(found.groups()), list(self.values(report(self.report)))
        if said != true:
            raise FigureDiffers(
                f"{self.document} says {said} where {self.report}.json gives {true}: {self.words}"
            )
        return found.span()

    def written(self, text: str) -> str:
        """`text` with the report's numbers in the places."""
        found = self._found(text)
        values = self.values(report(self.report))
        for group, value in reversed(list(enumerate(values, 1))):
            start, end = found.span(group)
            text = text[:start] + value + text[end:]
        return text

    def _found(self, text: str) -> re.Match[str]:
        found = list(self.pattern.finditer(text))
        if len(found) != 1:
            raise FigureDiffers(f"{self.document} has {len(found)} times: {self.words}")
        return found[0]


@dataclass(frozen=True)
class Table:
    """A table of a document, found by its first line: all `rows` come of the report."""

    document: str
    head: str
    report: str
    rows: Callable[[Report], Sequence[str]]

    @property
    def words(self) -> str:
        """As `Said`."""
        return self.head

    def check(self, text: str) -> tuple[int, int]:
        """Where it stands in `text`. Raises `FigureDiffers`."""
        start, end = self._rows(text)
        said, true = text[start:end].splitlines(), list(self.rows(report(self.report)))
        if said != true:
            other = next((pair for pair in zip(said, true, strict=False) if pair[0] != pair[1]), "")
            raise FigureDiffers(f"{self.document}, {self.head}: {other or (len(said), len(true))}")
        return text.index(self.head), end

    def written(self, text: str) -> str:
        """`text` with the report's rows."""
        start, end = self._rows(text)
        rows = (f"{row}\n" for row in self.rows(report(self.report)))
        return text[:start] + "".join(rows) + text[end:]

    def _rows(self, text: str) -> tuple[int, int]:
        if text.count(f"{self.head}\n") != 1:
            raise FigureDiffers(f"{self.document} has {text.count(self.head)} tables {self.head}")
        rule = text.index(f"{self.head}\n") + len(self.head) + 1
        start = text.index("\n", rule) + 1
        return start, start + len(_ROWS.match(text[start:])[0])  # type: ignore[index]


Declared = Said | Table

NO_FIGURES = (
    r"^#.*$",  # headings
    r"^!\[.*$",  # pictures
    r"```[\s\S]*?```",
    r"`[^`]*`",  # commands, names and identifiers
    r"\]\([^)]*\)",  # links
    r"Qwen3-0\.6B|Llama-3\.2-1B|Llama 3|Gemma 3|Gemma 4|Qwen3\.5|Qwen[23]|Python 3\.11|Node 20",
    r"\b95 %|\bp50|\bp95|\bp99|8-gram|\bFigure \d|float32|bfloat16|UTF-8|AVX512|AVX2",
)
"""Stretches whose numbers are settings, names or markup: what was asked, not what was measured."""


def figures_of(document: str, text: str) -> tuple[int, int]:
    """The stretch of a document that the rule is about: all of it, of the README its figures."""
    if document != README:
        return 0, len(text)
    start = text.index("\n## Figures")
    return start, text.index("\n## ", start + 1)


def unreported(
    document: str, text: str, declared: Sequence[Declared], settings: Sequence[str]
) -> Iterator[str]:
    """Numbers of `text` that nothing declares, each with what stands around it.

    And those of `settings` that `text` does not have.
    """
    start, end = figures_of(document, text)
    held = [False] * len(text)
    for each in declared:
        if each.document == document:
            first, last = each.check(text)
            held[first:last] = [True] * (last - first)
    asked = [r"\s+".join(map(re.escape, words.split())) for words in settings]
    for pattern in (*NO_FIGURES, *asked):
        count = 0
        for found in re.finditer(pattern, text, re.MULTILINE):
            held[found.start() : found.end()] = [True] * (found.end() - found.start())
            count += 1
        if pattern in asked and not count:
            yield f"a setting that is not there: {pattern}"
    for found in re.finditer(r"\d[\d.,]*", text):
        if start <= found.start() < end and not held[found.start()]:
            around = text[max(0, found.start() - 40) : found.end() + 20]
            yield " ".join(around.split())


def _words(piece: str) -> list[str]:
    """The words of a piece between places; empty ends keep the space beside a place."""
    return re.split(r"\s+", piece)
