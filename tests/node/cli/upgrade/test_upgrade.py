"""`fleet upgrade` in an environment of its own, by pip, with wheels of this tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Terminal
from tests.support.local_wheels import build, derive, environment_with

NEWER, BROKEN, FOREIGN = "90.0.0", "91.0.0", "92.0.0"
MAIN = "kakeya_fleet/node/cli/shell/dispatch.py"
CARD = "kakeya_fleet/fleet/cards/card.py"


class Place:
    """An environment with `fleet` in it, and wheels beside."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.version = build(self.wheels)
        derive(self.wheels, self.version, NEWER)
        self.python = environment_with(folder / "venv", self.wheels, self.version)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("KAKEYA_")}
        self._environment = kept | {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            # No index, and nobody's settings: what is not in the folder cannot come.
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            # Resolving what the libraries need again takes pip most of its time.
            "PIP_NO_COMPILE": "1",
            "PIP_NO_DEPS": "1",
            "XDG_RUNTIME_DIR": str(folder / "nobody"),
        }

    def fleet(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs the environment's `fleet`."""
        return subprocess.run(
            [str(self.python), "-P", "-m", "kakeya_fleet.node.cli", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def upgrade(self, version: str) -> Any:
        """`fleet upgrade --json` to it."""
        done = self.fleet("upgrade", "--to", version, "--wheels", str(self.wheels), "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def installed(self) -> str:
        """What `fleet --version` says."""
        return self.fleet("--version").stdout.removeprefix("fleet ").strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("upgrade"))


def test_a_dry_run_prints_the_installers_command_and_changes_nothing(place: Place) -> None:
    done = place.fleet("upgrade", "--to", NEWER, "--dry-run")
    assert done.stdout.startswith(f"{place.python} -m pip ")
    assert f"=={NEWER}" in done.stdout
    assert place.installed() == place.version


@pytest.mark.parametrize(
    ("version", "others", "says"),
    [
        (BROKEN, {MAIN: ("import sys\n", "import sys, no_such_library\n")}, "no_such_library"),
        (FOREIGN, {CARD: ("PROTOCOL_MIN = 1\n", "PROTOCOL_MIN = 9\n")}, "speaks protocol 9"),
    ],
)
def test_a_version_that_does_not_work_here_is_taken_back(
    place: Place, version: str, others: dict[str, tuple[str, str]], says: str
) -> None:
    derive(place.wheels, place.version, version, others)
    error = place.upgrade(version)["error"]
    assert error["reason"] == "UPGRADE_FAILED"
    assert says in error["message"]
    assert f"{place.version} is in place as before" in error["message"]
    assert place.installed() == place.version


def test_a_newer_version_takes_this_ones_place(place: Place) -> None:
    told = place.upgrade(NEWER)
    assert told == {
        "event": "upgraded",
        "from": place.version,
        "to": NEWER,
        "restarted": [],
        "to_restart": [],
    }
    assert place.installed() == NEWER


def test_a_checkout_is_left_to_git(fleet: Terminal) -> None:
    error = fleet.run("upgrade", "--json").json["error"]
    assert error["reason"] == "UPGRADE_UNSUPPORTED"
    assert "git pull" in error["message"]
