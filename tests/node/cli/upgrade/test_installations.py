"""Who installed `fleet`, what that installer is told, and what a new version must say."""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.upgrade import installation
from kakeya_fleet.node.cli.upgrade.installation import Installation, Installer, installation_here
from kakeya_fleet.node.cli.upgrade.installing import install_words
from kakeya_fleet.node.cli.upgrade.trial import tried

METADATA = "Metadata-Version: 2.4\nName: kakeya-fleet\nVersion: 0.1.0\nProvides-Extra: torch\n"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment that this process pretends to run in."""
    info = tmp_path / "site" / "kakeya_fleet-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)

    def found(_name: str) -> Distribution:
        return PathDistribution(info)

    monkeypatch.setattr(installation, "distribution", found)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    return tmp_path


def test_a_tool_of_uv_keeps_its_extras_and_what_is_beside(prefix: Path) -> None:
    (prefix / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "kakeya-fleet", extras = ["torch"] }, '
        '{ name = "hf-transfer", specifier = ">=0.1" }]\n'
    )
    assert install_words(installation_here(), "0.2.0", [Path("/w")]) == (
        *("uv", "tool", "install", "--force", "--upgrade", "kakeya-fleet[torch]==0.2.0"),
        *("--with", "hf-transfer>=0.1", "--find-links", "/w"),
    )
    (prefix / "uv-receipt.toml").write_text("[tool]\n")
    with pytest.raises(CommandFailed, match="uv tool install --force"):
        installation_here()


def test_a_tool_of_pipx_is_changed_in_its_own_environment(prefix: Path) -> None:
    facts = {"main_package": {"package_or_url": "kakeya-fleet[torch, traces]==0.1.0"}}
    (prefix / "pipx_metadata.json").write_text(json.dumps(facts))
    assert install_words(installation_here(), "") == (
        *("pipx", "runpip", prefix.name, "install", "--upgrade", "kakeya-fleet[torch,traces]"),
    )


def test_a_virtual_environment_is_its_pips_or_else_uvs(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = install_words(installation_here(), "0.2.0")
    assert words[:3] == (sys.executable, "-m", "pip")
    assert words[-1] == "kakeya-fleet[torch]==0.2.0"
    monkeypatch.setattr(installation, "find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/uv")
    assert install_words(installation_here(), "")[:5] == (
        *("uv", "pip", "install", "--python", sys.executable),
    )
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(CommandFailed, match="has no pip"):
        installation_here()


def test_the_systems_own_python_is_left_alone(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    with pytest.raises(CommandFailed, match="system's own Python") as caught:
        installation_here()
    assert caught.value.reason == "UPGRADE_UNSUPPORTED"


def interpreter(folder: Path, version: str, protocol: str) -> str:
    """A program that answers as a version's interpreter would."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--version) {version};; *) {protocol};; esac\n')
    program.chmod(0o755)
    return str(program)


def test_a_version_that_runs_and_shares_a_protocol_is_good(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo fleet 0.2.0", f"echo '[{PROTOCOL_MAX}, 99]'")
    assert tried(python, "0.2.0").protocol == (PROTOCOL_MAX, 99)


@pytest.mark.parametrize(
    ("version", "protocol", "says"),
    [
        ("echo fleet 0.1.0", "echo '[1, 1]'", "says 'fleet 0.1.0' and not 0.2.0"),
        ("echo fleet 0.2.0", "echo '[98, 99]'", "speaks protocol 98 to 99"),
        ("echo fleet 0.2.0", "echo '[0, 0]'", "speaks protocol 0 to 0"),
        ("echo fleet 0.2.0", "echo x", "does not tell its protocol"),
        ("echo no >&2; echo such >&2; exit 1", "", "does not run (such)"),
    ],
)
def test_any_other_is_not(tmp_path: Path, version: str, protocol: str, says: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        tried(interpreter(tmp_path, version, protocol), "0.2.0")
    assert says in caught.value.message
    assert Installation(Installer.PIP, "", tmp_path, "1").requirement("") == "kakeya-fleet"
