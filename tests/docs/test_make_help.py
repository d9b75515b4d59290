"""`make help` names every target that people call, and the pages name none that is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What `make help` says of each target."""
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def phony() -> set[str]:
    return {
        name for line in re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M) for name in line.split()
    }


def test_help_names_every_target_and_nothing_else(said: dict[str, str]) -> None:
    assert said.keys() == phony()
    assert all(len(sentence.split()) >= 2 for sentence in said.values())


def test_every_target_that_is_no_file_is_phony() -> None:
    targets = set(re.findall(r"^([a-z-]+):(?!=)", MAKEFILE, re.M))
    assert targets == phony()


def test_pages_name_targets_that_are_there() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"^(?:\w+=\S+ )*make ([a-z-]+)\b", page.read_text("utf-8"), re.M)
    }
    assert {"demo", "test", "setup", "wheels"} <= named
    assert named <= phony()


def test_the_demonstration_is_told_alike(said: dict[str, str]) -> None:
    """Each counts the nodes that the demonstration starts."""
    program = (ROOT / "scripts" / "demo.py").read_text("utf-8")
    nodes = set(re.findall(r"\.start\(\s*\"(mini-\d)\"", program))
    count = {2: "two", 3: "three", 4: "four"}[len(nodes)]
    assert said["demo"].startswith(f"{count} nodes")
    assert re.search(rf"^make demo +# {count} nodes", (ROOT / "README.md").read_text("utf-8"), re.M)


def test_no_install_hides_its_errors() -> None:
    assert not [line for line in MAKEFILE.splitlines() if "install" in line and "|| true" in line]
    assert "npm install --silent" not in MAKEFILE
    assert "uv pip install --quiet" not in MAKEFILE
