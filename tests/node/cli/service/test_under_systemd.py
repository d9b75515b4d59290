"""`fleet service` with a real systemd, and the unit as systemd itself checks it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.node.cli.service.definition import Definition
from kakeya_fleet.node.cli.service.systemd_unit import unit_text
from scripts.support.user_manager import user_manager, what_is_missing
from tests.support.commands import ANY_PORT, Terminal
from tests.support.in_process import Finished

LONE = ("--name", "solo", "--no-mdns", "--http", "off", "--serve", "proposer=ngram")

managed = pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
analysed = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)


@analysed
@pytest.mark.parametrize("name", ["mini-1", '50 % of $HOME \\ "quoted"'])
def test_systemd_finds_nothing_to_say_of_the_unit(tmp_path: Path, name: str) -> None:
    version = int(
        subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True)
        .stdout.split()[1]
        .split(".")[0]
    )
    config = tmp_path / name / "service.toml"
    service = Definition(
        name, config, config.parent, 5.0, "/bin/true", (("HF_HOME", f"/x/{name}"),)
    )
    unit = tmp_path / "kakeya-x.service"
    unit.write_text(unit_text(service, version))
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", "--recursive-errors=no", str(unit)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=gently"))
    broken = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", "--recursive-errors=no", str(unit)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "kill mode" in broken.stderr


class Managed:
    """`fleet service` of a user whose services systemd manages."""

    def __init__(self, fleet: Terminal, environment: dict[str, str]) -> None:
        self._fleet = fleet
        self._environment = environment

    def run(self, *words: str) -> Finished:
        """In this process."""
        return self._fleet.run("service", *words, **self._environment)

    def shown(self, key: str) -> str:
        """A property of solo's unit."""
        words = ["systemctl", "--user", "show", "kakeya-solo", "--value", f"--property={key}"]
        done = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def service(self) -> dict[str, Any]:
        """The one there is."""
        (found,) = self.run("status", "--json").json["services"]
        return dict(found)


@pytest.fixture
def service(fleet: Terminal, tmp_path: Path) -> Iterator[Managed]:
    # What a service is told is in its file: variables would win.
    kept = {key: value for key, value in fleet.environment.items() if key not in ANY_PORT}
    with user_manager(kept | {"HOME": str(tmp_path)}) as environment:
        yield Managed(fleet, environment)


def files(tmp_path: Path) -> list[str]:
    """What there is of services."""
    return sorted(
        str(path.relative_to(tmp_path))
        for pattern in ("config/systemd/user/**/*.service", "state/kakeya/*/service.toml")
        for path in tmp_path.glob(pattern)
    )


INSTALLED = [
    "config/systemd/user/default.target.wants/kakeya-solo.service",
    "config/systemd/user/kakeya-solo.service",
    "state/kakeya/solo/service.toml",
]


@managed
def test_a_node_lives_as_a_service_and_what_fails_is_undone(
    service: Managed, tmp_path: Path
) -> None:
    record = tmp_path / "state" / "kakeya" / "solo" / "agent.json"
    record.parent.mkdir(parents=True, mode=0o700)
    record.write_text(json.dumps({"name": "solo", "address": "127.0.0.1:1", "pid": os.getpid()}))
    by_hand = service.run("install", *LONE, "--json").json["error"]
    assert (by_hand["reason"], by_hand["metadata"]["pid"]) == ("STATE_LOCKED", str(os.getpid()))
    assert "fleet leave" in by_hand["message"]
    record.unlink()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        failed = service.run("install", *LONE, "--bind", address, "--json").json["error"]
    assert failed["reason"] == "SERVICE_FAILED"
    # The node's own sentence, through systemd.
    assert address in failed["message"]
    assert "nothing is left of it" in failed["message"]
    assert files(tmp_path) == []
    assert service.run("status").code == 1

    installed = service.run("install", *LONE, "--json").json
    assert (installed["state"], len(installed["changed"])) == ("running", 2)
    assert files(tmp_path) == INSTALLED
    assert service.shown("StatusText") == f"ready at {installed['address']}"
    assert service.shown("UnitFileState") == "enabled"
    again = service.run("install", *LONE, "--json").json
    assert (again["changed"], again["process_id"]) == ([], installed["process_id"])
    assert service.service()["address"] == installed["address"]

    before = (tmp_path / INSTALLED[-1]).read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        failed = service.run("install", *LONE, "--bind", address, "--json").json["error"]
    assert "the service as it was before is started again" in failed["message"]
    assert (tmp_path / INSTALLED[-1]).read_text() == before
    assert service.service()["process_id"] != installed["process_id"]

    gone = service.run("uninstall", "--json").json
    assert gone["name"] == "solo"
    assert files(tmp_path) == []
    assert (tmp_path / "state" / "kakeya" / "solo" / "identity.key").exists()
    assert service.run("uninstall", "--json").json["error"]["reason"] == "SERVICE_NOT_FOUND"
