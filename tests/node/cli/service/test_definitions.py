"""What service managers are told, and what they tell, as pure text."""

from __future__ import annotations

import plistlib
import sys
import tomllib
from pathlib import Path

import pytest

from kakeya_fleet.node.cli.service import launchd, launchd_plist, systemd, systemd_unit
from kakeya_fleet.node.cli.service.checked_options import checked_config
from kakeya_fleet.node.cli.service.definition import Definition, definition
from kakeya_fleet.node.cli.service.manager import State
from kakeya_fleet.node.cli.service.names import unit_name
from kakeya_fleet.node.cli.service.node_config import config_text, read_config
from kakeya_fleet.node.config.config import Config, build
from kakeya_fleet.node.config.role_spec import BadRoleSpec
from kakeya_fleet.node.errors import BadConfig, InsecureBind

ODD = 'a %h $HOME "b" \\n'


def service(name: str = "mini-1", state: str = "/s/mini-1", drain_seconds: float = 5) -> Definition:
    return definition(
        name, Path(state) / "service.toml", Path(state), drain_seconds, {"HF_HOME": "/x"}
    )


def test_a_unit_runs_this_installation_and_lets_it_drain() -> None:
    lines = systemd_unit.unit_text(service(drain_seconds=60), 252).splitlines()
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    assert start.startswith(f'ExecStart="{sys.executable}" "-P" ')
    assert start.endswith('"join" "--config" "/s/mini-1/service.toml"')
    assert {"Type=notify", "KillMode=mixed", "RestartPreventExitStatus=2"} <= set(lines)
    assert "TimeoutStopSec=90" in lines
    assert 'Environment="HF_HOME=/x"' in lines
    assert not any("OMP_NUM_THREADS" in line or line.startswith("RestartSteps") for line in lines)
    # Keys that an older systemd would complain of come with the one that knows them.
    assert "RestartSteps=5" in systemd_unit.unit_text(service(), 254).splitlines()


def test_paths_reach_systemd_as_they_are_and_come_back() -> None:
    text = systemd_unit.unit_text(service(state=f"/{ODD}"), 252)
    assert '"/a %%h $$HOME \\"b\\" \\\\n/service.toml"' in text
    assert systemd_unit.config_file_of(text) == Path(f"/{ODD}/service.toml")
    assert systemd_unit.config_file_of("[Service]\nExecStart=/bin/true\n") is None


def test_a_property_list_says_the_same_to_launchd_and_comes_back() -> None:
    content = launchd_plist.plist_bytes(service(state=f"/{ODD}", drain_seconds=60))
    told = plistlib.loads(content)
    assert told["Label"] == "dev.kakeya.fleet.mini-1"
    assert told["ProgramArguments"] == list(service(state=f"/{ODD}").command)
    assert (told["ExitTimeOut"], told["KeepAlive"]) == (90, {"SuccessfulExit": False})
    assert told["EnvironmentVariables"] == {"HF_HOME": "/x"}
    assert launchd_plist.config_file_of(content) == Path(f"/{ODD}/service.toml")
    for other in (b"", b"<plist", plistlib.dumps({"Label": "x"}), plistlib.dumps([])):
        assert launchd_plist.config_file_of(other) is None


def test_agents_of_others_are_no_services(tmp_path: Path) -> None:
    manager = launchd.Launchd(tmp_path)
    manager.file_of("mini-1").write_bytes(manager.content_of(service()))
    (tmp_path / "dev.kakeya.fleet.other.plist").write_bytes(plistlib.dumps({"Label": "x"}))
    (found,) = manager.installed()
    assert found.config_file == service().config_file


def test_a_units_name_is_the_nodes_with_what_systemd_allows() -> None:
    assert unit_name("mini-1") == "kakeya-mini-1.service"
    assert unit_name("mini 1\\ä") == r"kakeya-mini\x201\x5c\xc3\xa4.service"
    assert unit_name("a b") != unit_name(r"a\x20b")
    with pytest.raises(BadConfig, match="too long"):
        unit_name("ä" * 64)


@pytest.mark.parametrize(
    ("shown", "state", "detail"),
    [
        ("ActiveState=active SubState=running StatusText=ready", State.RUNNING, "ready"),
        ("ActiveState=activating SubState=start", State.STARTING, ""),
        ("ActiveState=activating SubState=auto-restart Result=exit-code ExecMainStatus=3",
         State.FAILING, "exit code 3"),
        ("ActiveState=failed Result=exit-code ExecMainStatus=3 StatusText=ended: why",
         State.FAILED, "why"),
        ("ActiveState=failed Result=signal ExecMainStatus=9 StatusText=ready",
         State.FAILED, "signal 9"),
        ("ActiveState=deactivating SubState=stop-sigterm", State.STOPPING, ""),
        ("ActiveState=inactive SubState=dead MainPID=0", State.STOPPED, ""),
        ("", State.STOPPED, ""),
    ],
)  # fmt: skip
def test_what_systemd_shows_is_a_condition(shown: str, state: State, detail: str) -> None:
    pairs: list[list[str]] = []
    for word in shown.split(" "):
        if "=" in word:
            pairs.append(word.split("=", 1))
        elif pairs:
            pairs[-1][1] += f" {word}"
    found = systemd.condition_of(dict(pairs))
    assert (found.state, found.detail) == (state, detail)


def test_what_launchd_prints_is_a_condition() -> None:
    print_ = "gui/501/x = {\n\tstate = running\n\tpid = 77\n\truns = 3\n\tlast exit code = 1\n}"
    running = launchd.condition_of(print_)
    assert (running.state, running.process_id, running.restart_count) == (State.RUNNING, 77, 2)
    ended = launchd.condition_of("x = {\n\tstate = not running\n\tlast exit code = 3\n}")
    assert (ended.state, ended.detail) == (State.FAILING, "exit code 3")
    clean = launchd.condition_of("x = {\n\tstate = not running\n\tlast exit code = 0\n}")
    assert clean.state is launchd.condition_of("").state is State.STOPPED


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_kept_configuration_says_what_was_typed_with_absolute_paths(alone: Path) -> None:
    (alone / "models" / "toy").mkdir(parents=True)
    (alone / "models" / "toy" / "config.json").write_text("{}")
    flags: dict[str, object] = {
        "name": 'mini "1" \\',
        "state": "st\x7fate",
        "serve": ("verifier=models/toy", "proposer=models/toy@org/name", "archive=64MiB"),
        "log_file": "node.log",
        "mdns": False,
    }
    config = checked_config(flags, {"KAKEYA_DRAIN_SECONDS": "30"}, None)
    text = config_text(config)
    file = alone / "service.toml"
    file.write_text(text)
    assert build({}, {}, file) == config
    assert read_config(file) == Config(
        name=config.name, state=config.state, log_file=config.log_file
    )
    kept = tomllib.loads(text)
    assert kept["serve"] == [
        f"verifier={alone}/models/toy",
        f"proposer={alone}/models/toy@org/name",
        "archive=64MiB",
    ]
    assert (kept["state"], kept["log_file"]) == (f"{alone}/st\x7fate", f"{alone}/node.log")
    assert (kept["drain_seconds"], kept["mdns"]) == (30.0, False)
    assert "period_seconds" not in kept


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"serve": ("poet=tiny",)}, BadRoleSpec),
        ({"bind": "0.0.0.0:0"}, InsecureBind),
        ({"name": "a/b"}, BadConfig),
    ],
)
def test_what_join_refuses_is_refused_at_install(
    alone: Path, flags: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        checked_config(flags, {}, None)
