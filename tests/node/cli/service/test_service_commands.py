"""`fleet service` where no manager answers, and against one that people run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_fleet.node.cli.service.command import COMMANDS
from kakeya_fleet.node.cli.service.definition import Definition
from kakeya_fleet.node.cli.service.installing import place
from kakeya_fleet.node.cli.service.manager import Condition, Installed, State
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from tests.support.commands import Terminal


@pytest.mark.parametrize("words", [("install",), ("status",), ("uninstall",)])
def test_without_a_manager_of_services_all_say_so(
    fleet: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    nobody = {"XDG_RUNTIME_DIR": str(tmp_path / "none"), "DBUS_SESSION_BUS_ADDRESS": ""}
    done = fleet.run("service", *words, "--json", **nobody)
    assert (done.code, done.json["error"]["reason"]) == (3, "SERVICE_UNSUPPORTED")
    assert list(tmp_path.rglob("service.toml")) == []


def test_a_wrong_option_is_refused_before_anything_is_asked(fleet: Terminal) -> None:
    done = fleet.run("service", "install", "--serve", "poet=tiny", "--json")
    assert (done.code, done.json["error"]["reason"]) == (2, "BAD_ROLE_SPEC")
    assert fleet.run("join", "--serve", "poet=tiny", "--json").code == 2


def test_every_command_has_an_example_and_json(fleet: Terminal) -> None:
    for name in COMMANDS:
        out = fleet.run("service", name, "--help").out
        assert f"fleet service {name}" in out.partition("Example:")[2], out
        assert "--json" in out
    near = fleet.run("service", "instal")
    assert (near.code, "did you mean `fleet service install`?" in near.err) == (2, True)


class Scripted:
    """A manager whose services go through the conditions that it is given."""

    kind, keeps_log = "scripted", True

    def __init__(self, folder: Path, *conditions: Condition, refuses: str = "") -> None:
        self._folder = folder
        self._conditions = list(conditions)
        self._refuses = refuses
        self.calls: list[str] = []

    def file_of(self, name: str) -> Path:
        return self._folder / f"{name}.service"

    def content_of(self, service: Definition) -> bytes:
        return " ".join(service.command).encode()

    def installed(self) -> list[Installed]:
        return []

    def start(self, name: str) -> None:
        self.calls.append("start")
        if self._refuses:
            raise CommandFailed("SERVICE_FAILED", self._refuses)

    def stop(self, name: str, seconds: float) -> None:
        self.calls.append("stop")

    def forget(self, name: str) -> None:
        self.calls.append("forget")

    def condition(self, name: str) -> Condition:
        if len(self._conditions) > 1:
            return self._conditions.pop(0)
        return self._conditions[0]

    def log_command(self, name: str) -> str:
        return ""

    def last_words(self, name: str) -> str:
        return "the last words"

    def without_login(self) -> str:
        return ""


STOPPED = Condition(State.STOPPED)


@pytest.fixture
def solo(tmp_path: Path) -> Definition:
    state = tmp_path / "state" / "solo"
    return Definition("solo", state / "service.toml", state, 5.0, "/bin/true")


def test_a_manager_that_refuses_leaves_nothing(solo: Definition, tmp_path: Path) -> None:
    manager = Scripted(tmp_path, STOPPED, refuses="no such thing")
    with pytest.raises(CommandFailed, match="no such thing; nothing is left of it"):
        place(manager, solo, "name")
    assert manager.calls == ["start", "stop", "forget"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not solo.state.exists()


def test_a_start_is_watched_past_the_drain_of_the_run_before(
    solo: Definition, tmp_path: Path
) -> None:
    solo.state.mkdir(parents=True)
    solo.config_file.write_text("old")
    manager = Scripted(
        tmp_path,
        Condition(State.RUNNING, run="1"),
        Condition(State.RUNNING, run="1"),
        Condition(State.RUNNING, run="1"),
        Condition(State.STOPPING, run="1"),
        Condition(State.STARTING, run="2"),
        Condition(State.RUNNING, run="2"),
    )
    placed = place(manager, solo, "new")
    assert (placed.condition.run, len(placed.changed)) == ("2", 2)
    assert solo.config_file.read_text() == "new"


def test_a_changed_service_that_fails_is_the_one_before_again(
    solo: Definition, tmp_path: Path
) -> None:
    solo.state.mkdir(parents=True)
    solo.config_file.write_text("old")
    manager = Scripted(tmp_path, STOPPED, STOPPED, Condition(State.FAILING, run="2"))
    manager.file_of("solo").write_text("unit")
    with pytest.raises(CommandFailed, match=r"the last words; the service as it was before"):
        place(manager, solo, "new")
    assert (solo.config_file.read_text(), manager.file_of("solo").read_text()) == ("old", "unit")
    assert manager.calls == ["start", "start"]
