"""What was set aside and removed is freed, also what a call that is ending holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.aside_checks import CHECKS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def checked() -> subprocess.CompletedProcess[str]:
    """A process that has run them all, or those before one that does not hold."""
    return subprocess.run(
        [sys.executable, "-m", "tests.support.aside_checks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_holds(checked: subprocess.CompletedProcess[str], name: str) -> None:
    assert name in checked.stdout.splitlines(), checked.stderr
