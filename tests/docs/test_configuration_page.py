"""docs/configuration.md has every key of a node, and every option of `fleet join` is one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
import pytest

from kakeya_fleet.node.cli.join.command import command as join
from kakeya_fleet.node.config.config import Config, build
from kakeya_fleet.node.config.keys import meanings
from kakeya_fleet.node.errors import BadConfig
from scripts.write import configuration_reference

ROOT = Path(__file__).parents[2]
KEYS = [field.name for field in dataclasses.fields(Config)]
# A value of each type, as the environment writes it: not the default of any key.
WRITTEN = {"int": "7", "float": "3", "tuple[str, ...]": "127.0.0.1:7", "str": "x"}
OWN = {
    "http_origins": "https://chat.example",
    "mdns": "false",
    "codec_sampling": "false",
    "insecure": "true",
    "trusted_network": "true",
    "name": "mini",
    "bind": "127.0.0.1:7",
    "fleet_name": "desk",
    "http_bind": "off",
    "dtype": "bfloat16",
    "weights": "int8",
    "backend": "mlx",
    "device": "cuda",
    "links": "grpc",
    "log_level": "error",
    "log_format": "json",
    "log_file_bytes": "4096",
    "traces_endpoint": "http://127.0.0.1:4318",
}


@pytest.fixture(autouse=True)
def no_file_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))


def test_the_page_is_what_the_code_says(docs: Path) -> None:
    page = (docs / "configuration.md").read_text("utf-8")
    assert page == configuration_reference.page(), (
        "run python -m scripts.write.configuration_reference"
    )


def test_every_key_is_there_with_its_meaning(docs: Path) -> None:
    page = (docs / "configuration.md").read_text("utf-8")
    assert set(meanings()) == set(KEYS)
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(KAKEYA_\w+)` \| (.+) \|$", page, re.MULTILINE)
    assert [key for key, _, _ in rows] == KEYS
    assert all(variable == f"KAKEYA_{key.upper()}" for key, variable, _ in rows)


def test_every_option_but_two_is_a_key() -> None:
    options = {option.name for option in join.params if isinstance(option, click.Option)}
    with_key = options - configuration_reference.WITHOUT_KEY
    assert len(with_key) == len(configuration_reference.flags()) == len(options) - 2
    assert "--config and --json" in str(join.epilog)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_read_from_the_environment(key: str) -> None:
    text = OWN.get(key) or WRITTEN[str(Config.__annotations__[key])]
    before, config = Config(), build({}, {f"KAKEYA_{key.upper()}": text})
    assert [each for each in KEYS if getattr(config, each) != getattr(before, each)] == [key]


def test_every_row_of_the_docs_example_is_a_key(docs: Path, tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (docs / "configuration.md").read_text(), re.S)
    file = tmp_path / "config.toml"
    file.write_text(example)
    assert build({}, {}, file).peers == ("192.168.1.20:7600",)


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("PEER", "PEERS"), ("FLEET", "FLEET_NAME"), ("HTTP", "HTTP_BIND"), ("NO_MDNS", "MDNS")],
)
def test_a_flags_name_leads_to_its_key(variable: str, nearest: str) -> None:
    with pytest.raises(BadConfig) as caught:
        build({}, {f"KAKEYA_{variable}": "x"})
    assert caught.value.metadata["nearest"] == f"KAKEYA_{nearest}"
