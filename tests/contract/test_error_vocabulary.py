"""The reasons that the code tells are those of the vocabulary: all of them, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import kakeya
from kakeya import KakeyaError
from kakeya_fleet.node.rpc.error_reasons import REASONS

ROOT = Path(__file__).parents[2]
CLIENT = "sdks/python/kakeya"
ROOMS = ("engine", "fleet", "node", CLIENT)
# Made of the vocabulary: what they tell is no use of it.
MADE = {ROOT / CLIENT / "errors.py", ROOT / CLIENT / "__init__.py"}
# Whose arguments are reasons.
RAISED = {"CommandFailed", "HttpRefusal"}
NAMED = {"reason", "default_reason", "INTERNAL_REASON"}
KINDS = {
    name: kind.default_reason
    for name, kind in vars(kakeya).items()
    if isinstance(kind, type) and issubclass(kind, KakeyaError)
}
"""The reasons of the clients' classes."""
WORDS = re.compile("|".join((*RAISED, *NAMED, *KINDS)))
"""In a module without any of them nobody need look."""
UPPER = re.compile(r"[A-Z][A-Z]*(_[A-Z]+)*$")
ON_A_PAGE = re.compile(r'\b(?:problem|[rR]efused)\(\s*(?:\d+,\s*)?"([A-Z_]+)"|reason: "([A-Z_]+)"')


@dataclass(frozen=True)
class Module:
    """The reasons that a module's classes and calls name, and the names in its code."""

    told: frozenset[str]
    names: frozenset[str]


def told(node: ast.AST) -> Iterator[str]:
    """The reasons that a call or an assignment names."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISED:
        yield from (text for each in node.args if (text := constant(each)))
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if getattr(target, "id", "") in NAMED:
            yield from (text for each in ast.walk(node) if (text := constant(each)))


def constant(node: ast.AST) -> str:
    """A text in UPPER_SNAKE_CASE; empty for everything else."""
    if not isinstance(node, ast.Constant) or not UPPER.match(str(node.value)):
        return ""
    return str(node.value)


@cache
def modules() -> dict[str, Module]:
    """Every module that people write, by its path."""
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    return {
        str(file.relative_to(ROOT)): read(file)
        for file in files
        if file not in MADE and "_pb2" not in file.name
    }


def read(file: Path) -> Module:
    reasons: set[str] = set()
    names: set[str] = set()
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if WORDS.search(text) else ():
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.Call, ast.Assign, ast.AnnAssign)):
            reasons.update(told(node))
    return Module(frozenset(reasons), frozenset(names))


def pages() -> Iterator[tuple[str, str]]:
    """Every source of the dashboard that people write, by its path."""
    for room in ("page", "server"):
        for file in (ROOT / "dashboard" / room).rglob("*.ts*"):
            yield str(file.relative_to(ROOT)), file.read_text("utf-8")


@pytest.fixture(scope="module")
def reasons() -> dict[str, set[str]]:
    """Every reason that the code tells by its name, with the files that do."""
    found: dict[str, set[str]] = {}
    for path, module in modules().items():
        for reason in module.told:
            found.setdefault(reason, set()).add(path)
    for path, text in pages():
        for groups in ON_A_PAGE.findall(text) if ".test." not in path else ():
            found.setdefault("".join(groups), set()).add(path)
    return found


@pytest.fixture(scope="module")
def raised() -> set[str]:
    """Reasons of the clients' classes that the client or the node names in its code."""
    names = {
        name
        for path, module in modules().items()
        if path.startswith(("node", CLIENT))
        for name in module.names
    }
    return {reason for name, reason in KINDS.items() if name in names}


def test_the_scan_finds_what_every_layer_tells(
    reasons: dict[str, set[str]], raised: set[str]
) -> None:
    assert {"OUT_OF_KV_MEMORY", "NO_PLACEMENT", "BAD_CONFIG", "DRAINING"} <= reasons.keys()
    assert {"NO_LOCAL_NODE", "FOREIGN_HOST", "TRACES_EXTRA_MISSING"} <= reasons.keys()
    assert {"PLAYGROUND_FULL", "INTERNAL_ERROR"} <= reasons.keys()
    assert {"NODE_UNREACHABLE", "CLIENT_CLOSED", "TOKENIZER_MISMATCH"} <= raised


def test_every_reason_that_is_told_is_in_the_vocabulary(reasons: dict[str, set[str]]) -> None:
    assert not {reason: files for reason, files in reasons.items() if reason not in REASONS}


def test_no_reason_of_the_vocabulary_is_told_by_nobody(
    reasons: dict[str, set[str]], raised: set[str]
) -> None:
    families = {parent for kind in every(KakeyaError) for parent in kind.__mro__[1:]}
    bases = {getattr(parent, "default_reason", "") for parent in families}
    assert REASONS.keys() - reasons.keys() - raised - bases == set()


def every(kind: type[KakeyaError]) -> Iterator[type[KakeyaError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from every(child)
