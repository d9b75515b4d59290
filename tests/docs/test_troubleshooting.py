"""docs/troubleshooting.md has every named error, and none that the code does not tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_fleet.node.cli.shell.mends import MENDS
from kakeya_fleet.node.rpc.error_table import INTERNAL_REASON, STATUS

ROOT = Path(__file__).parents[2]
ROOMS = ("engine", "fleet", "node", "sdks/python/kakeya")
# Whose second or first argument is a reason.
RAISED = {"CommandFailed", "HttpRefusal"}
NAMED = {"reason", "default_reason", "INTERNAL_REASON"}
UPPER = re.compile(r"[A-Z][A-Z]*(_[A-Z]+)*$")


def told(tree: ast.AST) -> Iterator[str]:
    """The reasons that a module's classes and calls name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISED:
            yield from (text for each in node.args if (text := constant(each)))
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and getattr(target, "id", "") in NAMED:
            yield from (text for each in ast.walk(node) if (text := constant(each)))


def constant(node: ast.AST) -> str:
    """A text in UPPER_SNAKE_CASE; empty for everything else."""
    is_reason = isinstance(node, ast.Constant) and UPPER.match(str(node.value))
    return str(node.value) if is_reason else ""


@pytest.fixture(scope="module")
def reasons() -> dict[str, set[str]]:
    """Every reason of the code, with the files that tell it."""
    found: dict[str, set[str]] = {}
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for reason in told(ast.parse(file.read_text("utf-8"))):
                found.setdefault(reason, set()).add(str(file.relative_to(ROOT)))
    typescript = ROOT / "sdks/typescript/src/errors.ts"
    for reason in re.findall(r'defaultReason.*?= "([A-Z_]+)"', typescript.read_text("utf-8")):
        found.setdefault(reason, set()).add(str(typescript.relative_to(ROOT)))
    return found


@pytest.fixture(scope="module")
def sections(docs) -> dict[str, str]:
    """What the page says of each name."""
    page = (docs / "troubleshooting.md").read_text("utf-8")
    page = re.sub(r"^## .*\n", "### -\n", page, flags=re.MULTILINE)
    parts = re.split(r"^### (.*)\n", page, flags=re.MULTILINE)
    texts = zip(parts[1::2], parts[2::2], strict=True)
    return {name: " ".join(text.split()) for name, text in texts if UPPER.match(name)}


def test_the_scan_finds_what_every_layer_tells(reasons):
    assert {kind.reason for kind in STATUS} | {INTERNAL_REASON} <= reasons.keys()
    assert {"NODE_UNREACHABLE", "NO_LOCAL_NODE", "FOREIGN_HOST", "BAD_CONFIG"} <= reasons.keys()
    assert {"TRACES_EXTRA_MISSING", "MODEL_SERVED_ELSEWHERE"} <= reasons.keys()


def test_every_named_error_is_there(reasons, sections):
    missing = {reason: files for reason, files in reasons.items() if reason not in sections}
    assert not missing


def test_no_name_is_stale(reasons, sections):
    assert set(sections) - set(reasons) == set()


def test_each_has_a_cause_and_a_mend(sections):
    for name, text in sections.items():
        cause, separator, mend = text.partition("**Mend:**")
        assert separator, name
        assert len(cause.split()) >= 4, name
        assert mend.strip().endswith((".", ")", "`")), name


def test_the_terminals_mends_are_those_of_the_page(sections):
    for reason, mend in MENDS.items():
        assert mend.lower() in sections[reason].lower(), reason
