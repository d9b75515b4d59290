"""Plants one fault at a time in a throw-away copy of the tree, and expects its tests to fail.

python -m scripts.plant_mutants              # all of scripts/mutants, some minutes
python -m scripts.plant_mutants mask seed    # those whose names contain one of the words
python -m scripts.plant_mutants --list
python -m scripts.plant_mutants --check      # that each has its place, as `make lint` asks

Exit status 1 when a mutant survives, when the tests fail without one, or when the text
that one replaces is not in its file exactly once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from scripts.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 600.0
TOLD_CHARACTERS = 3000
# Of pytest; whatever else it exits with, no test said anything about the fault.
_PASSED, _FAILED = 0, 1


class Verdict(Enum):
    """What the tests say of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    NOT_RUN = "NOT RUN"


def misplaced(mutant: Mutant, root: Path = ROOT) -> str:
    """Why the mutant cannot be planted below `root`; empty when it can."""
    path = root / mutant.file
    if not path.is_file():
        return f"{mutant.file} is not there"
    count = path.read_text("utf-8").count(mutant.old)
    return "" if count == 1 else f"its text is in {mutant.file} {count} times"


@contextmanager
def planted(mutant: Mutant, root: Path) -> Iterator[None]:
    """The mutant in the tree at `root`, and then the file as it was."""
    path = root / mutant.file
    sound = path.read_text("utf-8")
    path.write_text(sound.replace(mutant.old, mutant.new), "utf-8")
    try:
        yield
    finally:
        path.write_text(sound, "utf-8")


@contextmanager
def copied_tree(root: Path = ROOT) -> Iterator[Path]:
    """A copy of what git has or would add, deleted at the end."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = root / name, copy / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        yield copy


def environment(root: Path) -> Mapping[str, str]:
    """What Python imports from the tree at `root`, and not from where it is installed."""
    path = os.pathsep.join([str(root), str(root / "sdks" / "python")])
    return {
        **os.environ,
        "PYTHONPATH": path,
        # A file that changes twice in a second would be taken from the cache.
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run_tests(root: Path, tests: Sequence[str], expected: Sequence[int]) -> int:
    """The exit status of pytest, which stops at the first failure; what it said of another."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *tests]
    done = subprocess.run(
        command,
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode not in expected:
        print(done.stdout[-TOLD_CHARACTERS:], done.stderr[-TOLD_CHARACTERS:], sep="\n")
    return done.returncode


def verdict(mutant: Mutant, root: Path) -> Verdict:
    """Plants the mutant in the tree at `root` and runs its tests."""
    with planted(mutant, root):
        status = run_tests(root, mutant.tests, (_PASSED, _FAILED))
    return {_PASSED: Verdict.SURVIVED, _FAILED: Verdict.CAUGHT}.get(status, Verdict.NOT_RUN)


def chosen(words: Sequence[str]) -> list[Mutant]:
    """The mutants whose names contain one of `words`; all without any."""
    return [each for each in MUTANTS if not words or any(word in each.name for word in words)]


def runs_of(mutants: Sequence[Mutant]) -> list[tuple[str, ...]]:
    """Arguments of pytest that together select all tests of `mutants`: those with options apart."""
    plain = {each.tests for each in mutants if not any(word.startswith("-") for word in each.tests)}
    together = tuple(sorted({test for tests in plain for test in tests}))
    return [*([together] if together else []), *sorted({each.tests for each in mutants} - plain)]


def plant(mutants: Sequence[Mutant]) -> int:
    """Plants all, prints a line each, returns how many were not caught."""
    with copied_tree() as root:
        print("without a fault: ", end="", flush=True)
        for tests in runs_of(mutants):
            if run_tests(root, tests, (_PASSED,)) != _PASSED:
                print(f"tests fail already: {' '.join(tests)}")
                return len(mutants)
        print("the tests pass")
        found = []
        for mutant in mutants:
            began = time.monotonic()
            found.append(verdict(mutant, root))
            print(f"{found[-1].value:8} {time.monotonic() - began:5.1f} s  {mutant.name}")
    caught = found.count(Verdict.CAUGHT)
    print(f"{caught} of {len(found)} were caught")
    return len(found) - caught


def main(arguments: Sequence[str] | None = None) -> int:
    """Plants what was asked for; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="plant those whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="name them, and plant none")
    parser.add_argument("--check", action="store_true", help="look for their places, plant none")
    asked = parser.parse_args(arguments)
    mutants = chosen(asked.words)
    if asked.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.file}, {' '.join(mutant.tests)}")
        return 0
    unfit = [f"{mutant.name}: {reason}" for mutant in mutants if (reason := misplaced(mutant))]
    if unfit or not mutants:
        print("\n".join(unfit) or "no mutant has such a name", file=sys.stderr)
        return 1
    return 1 if not asked.check and plant(mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
