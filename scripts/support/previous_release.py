"""The release before this one: its sources, unpacked from the history of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMIT = Path(__file__).with_suffix(".txt").read_text().strip()
ROOMS = (
    *("kakeya_fleet", "fleet", "engine", "node", "sdks/python", "VERSION"),
    # Of which its agents are started as copies.
    *("scripts/__init__.py", "scripts/support", "tests/__init__.py", "tests/warm"),
)


def what_is_missing() -> str:
    """Empty where the release before can be had, else a sentence: a shallow clone has none."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"],
        capture_output=True,
        check=False,
    )
    return f"the history has no {COMMIT[:12]}, the release before" if found.returncode else ""


def unpack(folder: Path) -> None:
    """Puts its sources into a folder. Raises `CalledProcessError` where the history lacks it."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "release.tar"
    words = ["git", "-C", str(ROOT), "archive", "-o", str(archive), COMMIT, *ROOMS]
    subprocess.run(words, check=True)
    # Python's own asks for a filter from 3.11.4 on, and knows of none before.
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)


def python_path(folder: Path) -> str:
    """Where Python looks first for what was unpacked there."""
    return ":".join(map(str, (folder, folder / "sdks" / "python")))
