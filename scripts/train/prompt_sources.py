"""What prompts are made of: functions and paragraphs of this environment's own Python packages.

Only packages under permissive licences are read, and the standard library. A package's functions
are held out with it, a paragraph with its document, a topic by itself: by the hash of the name, so
the split is the same on every machine.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import cast

from scripts.train import python_corpus

HELD_OUT_PERCENT = 6
PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|PSF|ISC|0BSD|Zlib|HPND)\b", re.IGNORECASE)
COPYLEFT = re.compile(r"GPL|MPL|EUPL", re.IGNORECASE)
SKIPPED_PARTS = frozenset({"test", "tests", "testing", "_vendor", "vendored", "generated"})
FUNCTION_LINES = (5, 32)
PARAGRAPH_WORDS = (35, 170)
MOST_OF_A_PACKAGE = 500
"""Functions, and paragraphs, of one package: large ones would be all there is."""
MOST_FILE_BYTES = 200_000
PROSE_SHARE = 0.93
"""Letters, spaces and plain punctuation among the characters of a paragraph."""
_PROSE = re.compile(r"[\w\s.,;:'\"!?()-]")


@dataclass(frozen=True)
class Package:
    """A package whose text may be used: its name, and its licence as it states it."""

    name: str
    licence: str
    files: tuple[Path, ...]
    description: str


@dataclass(frozen=True)
class Function:
    """A function with its source and the first sentence of its docstring."""

    package: str
    name: str
    signature: str
    purpose: str
    source: str


@dataclass(frozen=True)
class Paragraph:
    """Plain prose of `document`."""

    document: str
    text: str


def is_held_out(name: str) -> bool:
    """Whether what has this name is kept for evaluation."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def packages() -> list[Package]:
    """The standard library and every permissive distribution, by name."""
    library = python_corpus.standard_library()
    own = [
        path
        for path in sorted(library.rglob("*.py"))
        if python_corpus.is_accepted(path.relative_to(library).as_posix())
    ]
    found = [Package("python", "PSF-2.0", tuple(own), ""), *permissive(distributions())]
    return sorted(found, key=lambda package: package.name)


def permissive(found: Iterable[Distribution]) -> list[Package]:
    """Those whose licence lets anybody use their text."""
    return [package for each in found if (package := _package(each)) is not None]


def _package(distribution: Distribution) -> Package | None:
    about = cast("Message", distribution.metadata)
    words = [about.get(name) or "" for name in ("License-Expression", "License")]
    words += [each for each in about.get_all("Classifier") or () if each.startswith("License")]
    licence = next((each.split("\n")[0] for each in words if PERMISSIVE.search(each)), "")
    if not licence or any(COPYLEFT.search(each.split("\n")[0]) for each in words):
        return None
    files = [
        Path(str(distribution.locate_file(each)))
        for each in distribution.files or ()
        if each.suffix == ".py" and not SKIPPED_PARTS.intersection(each.parts)
    ]
    description = about.get_payload()
    text = description if isinstance(description, str) else ""
    return Package(about["Name"].lower(), licence, tuple(sorted(files)), text)


def texts(package: Package) -> Iterator[tuple[str, str]]:
    """Name and text of each readable source file."""
    for path in package.files:
        if path.is_file() and path.stat().st_size <= MOST_FILE_BYTES:
            text = python_corpus.decode(path.read_bytes())
            if text:
                yield path.stem, text


def functions(package: Package) -> Iterator[Function]:
    """Documented functions of a readable length."""
    for _, text in texts(package):
        for node in ast.walk(_parsed(text)):
            if isinstance(node, ast.FunctionDef):
                found = _function(package.name, text, node)
                if found is not None:
                    yield found


def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text)
    except SyntaxError:
        # Templates, and syntax of other versions.
        return ast.Module([], [])


def _function(package: str, text: str, node: ast.FunctionDef) -> Function | None:
    purpose = (ast.get_docstring(node) or "").split("\n\n")[0].split(". ")[0]
    purpose = " ".join(purpose.split()).rstrip(".")
    least, most = FUNCTION_LINES
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if not (least <= lines <= most and 4 <= len(purpose.split()) <= 30) or "`" in purpose:
        return None
    source = ast.get_source_segment(text, node)
    if source is None or node.name.startswith("__"):
        return None
    return Function(package, node.name, ast.unparse(node.args), purpose, source)


def paragraphs(package: Package) -> Iterator[Paragraph]:
    """Plain prose of docstrings, and of the package's description."""
    yield from _prose(f"{package.name}/description", package.description)
    for name, text in texts(package):
        for node in ast.walk(_parsed(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield from _prose(f"{package.name}/{name}", ast.get_docstring(node) or "")


def _prose(document: str, text: str) -> Iterator[Paragraph]:
    least, most = PARAGRAPH_WORDS
    for part in text.split("\n\n"):
        words = part.split()
        flat = " ".join(words)
        if not least <= len(words) <= most or not flat[0].isupper() or ">>>" in flat:
            continue
        if len(_PROSE.findall(flat)) >= PROSE_SHARE * len(flat) and flat[-1] in ".!?":
            yield Paragraph(document, flat)


def interpreter() -> str:
    """Which standard library that was."""
    return f"CPython {sys.version.split()[0]}"
