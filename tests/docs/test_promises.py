"""docs/promises.md names tests that are there, and every fault that is planted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page(docs: Path) -> str:
    return (docs / "promises.md").read_text("utf-8")


@pytest.fixture(scope="module")
def planted() -> dict[str, tuple[str, ...]]:
    """The tests that find each fault."""
    return {mutant.name: mutant.tests for mutant in MUTANTS}


def held_by(section: str) -> set[str]:
    return set(re.findall(r"`(tests/[^`]+)`", section))


def faults(section: str) -> list[str]:
    found = re.search(r"^Planted: (.+?)\.$", section, re.MULTILINE | re.DOTALL)
    return [" ".join(name.split()) for name in found[1].split(";")] if found else []


def test_the_tests_are_there(page: str) -> None:
    named = held_by(page)
    assert len(named) > 50
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_fault_is_planted_under_one_promise(
    page: str, planted: dict[str, tuple[str, ...]]
) -> None:
    named = [name for section in page.split("\n## ") for name in faults(section)]
    assert sorted(named) == sorted(planted)


def test_faults_are_found_by_tests_of_their_promise(
    page: str, planted: dict[str, tuple[str, ...]]
) -> None:
    for section in page.split("\n## "):
        for fault in faults(section):
            files = {test.partition("::")[0] for test in planted[fault]}
            assert files & held_by(section), fault
