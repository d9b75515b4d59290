"""A program of the system that is asked, and what becomes of its refusals."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from kakeya_fleet.node.cli.shell.failure import CommandFailed

PATIENCE_SECONDS = 30.0


def ask(words: Sequence[str], seconds: float = PATIENCE_SECONDS) -> str:
    """What the program prints. Raises `CommandFailed` (SERVICE_FAILED) with its own words."""
    done = tried(words, seconds)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise CommandFailed(
            "SERVICE_FAILED",
            f"`{' '.join(words)}` failed with exit code {done.returncode}: {said or 'no words'}",
            metadata={"command": " ".join(words), "exit_code": str(done.returncode)},
        )
    return done.stdout


def tried(
    words: Sequence[str], seconds: float = PATIENCE_SECONDS
) -> subprocess.CompletedProcess[str]:
    """How the program ended; one that is not there or hangs, with a shell's exit code of that."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", f"{words[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"no answer in {seconds:g} s")
