"""`fleet upgrade` in an environment of its own, by pip, with wheels of this tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.support.local_wheels import build, derive, environment_with
from scripts.support.user_manager import user_manager, what_is_missing
from tests.support.commands import Terminal

NEWER, BROKEN, IDLE = "90.0.0", "91.0.0", "92.0.0"
MAIN = "kakeya_fleet/node/cli/shell/dispatch.py"
AGENT = "kakeya_fleet/node/app/agent.py"
LIMIT = "    raise_file_limit(FileLimits().descriptors)\n"
LONE = ("--name", "solo", "--no-mdns", "--http", "off", "--serve", "proposer=ngram")


class Place:
    """An environment with `fleet` in it, and wheels beside."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.version = build(self.wheels)
        derive(self.wheels, self.version, NEWER)
        self.python = environment_with(folder / "venv", self.wheels, self.version)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("KAKEYA_")}
        self.environment = kept | {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "KAKEYA_LINKS": "grpc",
            # No index, and nobody's settings: what is not in the folder cannot come.
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            # What the libraries need is not resolved again, and modules that nobody runs are not
            # compiled.
            "PIP_COMPILE": "false",
            "PIP_NO_DEPS": "1",
            # No service of whoever runs the tests is looked at.
            "XDG_RUNTIME_DIR": str(folder / "nobody"),
        }

    def fleet(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the environment's `fleet`."""
        return subprocess.run(
            [str(self.python), "-P", "-m", "kakeya_fleet.node.cli", *words],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def told(self, *words: str, **environment: str) -> Any:
        """What it prints with --json."""
        done = self.fleet(*words, "--json", **environment)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def upgrade(self, version: str, **environment: str) -> Any:
        """`fleet upgrade` to it."""
        words = ("upgrade", "--to", version, "--wheels", str(self.wheels))
        return self.told(*words, **environment)

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


def test_a_version_that_does_not_run_is_taken_back(place: Place) -> None:
    others = {MAIN: ("import sys\n", "import sys, no_such_library\n")}
    derive(place.wheels, place.version, BROKEN, others)
    error = place.upgrade(BROKEN)["error"]
    assert error["reason"] == "UPGRADE_FAILED"
    assert "no_such_library" in error["message"]
    assert f"{place.version} is in place as before" in error["message"]
    assert place.installed() == place.version


@pytest.mark.wide
@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_a_service_goes_over_to_a_version_whose_node_starts_and_to_no_other(place: Place) -> None:
    derive(place.wheels, place.version, IDLE, {AGENT: (LIMIT, "    raise SystemExit(9)\n")})
    with user_manager(place.environment) as managed:
        before = place.told("service", "install", *LONE, **managed)
        error = place.upgrade(IDLE, **managed)["error"]
        assert "the service of solo does not start" in error["message"]
        assert f"{place.version} is in place as before" in error["message"]
        (again,) = place.told("service", "status", **managed)["services"]
        assert (again["state"], again["address"]) == ("running", before["address"])
        told = place.upgrade(NEWER, **managed)
        assert (told["from"], told["to"]) == (place.version, NEWER)
        assert (told["restarted"], told["to_restart"]) == (["solo"], [])
        snapshot = place.told("status", **managed)
    (node,) = snapshot["nodes"]
    assert node["card"]["software_version"] == NEWER
    assert before["address"] in node["card"]["addresses"]


def test_a_newer_version_takes_this_ones_place(place: Place) -> None:
    """It is there already where a service went over to it."""
    said = place.fleet("upgrade", "--to", NEWER, "--wheels", str(place.wheels))
    assert said.stdout.startswith(f"{NEWER} is installed")
    assert place.installed() == NEWER


def test_a_checkout_is_left_to_git(fleet: Terminal) -> None:
    error = fleet.run("upgrade", "--json").json["error"]
    assert error["reason"] == "UPGRADE_UNSUPPORTED"
    assert "git pull" in error["message"]
