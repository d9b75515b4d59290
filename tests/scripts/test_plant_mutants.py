"""Mutants are planted where they are meant to be, and what the tests say of them is told."""

from pathlib import Path

import pytest

from scripts.mutants import MUTANTS, Mutant
from scripts.plant_mutants import Verdict, misplaced, planted, runs_of, verdict

ROOT = Path(__file__).resolve().parents[2]

RULE = "def sees(key, query):\n    return key <= query\n"
TESTS = """
from rule import sees


def test_the_own_key():
    assert sees(3, 3)


def test_a_later_key():
    assert not sees(4, 3)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "rule.py").write_text(RULE)
    (tmp_path / "test_rule.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def fault(new: str, *tests: str) -> Mutant:
    return Mutant("a fault", "rule.py", "key <= query", new, tests or ("test_rule.py",))


def test_each_can_be_planted_and_names_tests_that_are_there() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= 20
    assert [(each.name, reason) for each in MUTANTS if (reason := misplaced(each, ROOT))] == []
    missing = [
        (each.name, test)
        for each in MUTANTS
        for test in _named(each.tests)
        if not (ROOT / test.partition("::")[0]).is_file() or not _defines(test)
    ]
    assert missing == []


def test_tests_with_options_are_run_apart() -> None:
    mutants = [fault("", "b.py"), fault("", "a.py", "-k", "x"), fault("", "a.py", "b.py")]
    assert runs_of(mutants) == [("a.py", "b.py"), ("a.py", "-k", "x")]
    assert runs_of(mutants[1:2]) == [("a.py", "-k", "x")]


def _named(arguments: tuple[str, ...]) -> list[str]:
    """The tests of pytest's arguments; each option there has a value behind it."""
    pairs = zip(("", *arguments), arguments, strict=False)
    return [each for before, each in pairs if not each.startswith("-") and before[:1] != "-"]


def _defines(test: str) -> bool:
    path, _, name = test.partition("::")
    return not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8")


def test_a_mutant_of_another_text_or_of_two_is_misplaced(tree: Path) -> None:
    assert misplaced(fault("key < query"), tree) == ""
    assert "0 times" in misplaced(Mutant("a", "rule.py", "key >= query", "", ()), tree)
    assert "2 times" in misplaced(Mutant("a", "rule.py", "key", "", ()), tree)
    assert "not there" in misplaced(Mutant("a", "no.py", "", "", ()), tree)


def test_a_fault_is_there_while_its_tests_run_and_not_behind_them(tree: Path) -> None:
    with pytest.raises(KeyboardInterrupt), planted(fault("key < query"), tree):
        assert "key < query" in (tree / "rule.py").read_text()
        raise KeyboardInterrupt
    assert (tree / "rule.py").read_text() == RULE


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        (fault("key < query"), Verdict.CAUGHT),
        (fault("key < query + 1"), Verdict.SURVIVED),
        # What does not even begin has no test that says so.
        (fault("key <"), Verdict.NOT_RUN),
        (fault("key < query", "test_none.py"), Verdict.NOT_RUN),
    ],
)
def test_only_a_test_that_fails_catches_a_fault(
    tree: Path, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, told: Verdict
) -> None:
    # Those tests need none, and pytest starts six times faster.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert verdict(mutant, tree) is told
