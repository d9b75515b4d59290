"""The configuration that a service's node reads: checked as `fleet join` does, kept as TOML.

It stands alone: what the command line, the variables and the files say at install, with
every path absolute, since a service starts elsewhere and with another environment.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.engine.models.model_folder import SHIPPED, folder_here
from kakeya_fleet.engine.proposers.loading import TARGET_MARK
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.app.ground import role_settings
from kakeya_fleet.node.config.config import Config, build
from kakeya_fleet.node.config.role_spec import parse_role_spec
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.groups.group_settings import read_hostfile

CONFIG_NAME = "service.toml"
_HEADER = """\
# What the service of this node starts with, written by `fleet service install`. Keys:
# docs/configuration.md. A change counts from the next start on.
"""


def checked_config(
    flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None
) -> Config:
    """The node's configuration. Raises what `fleet join` raises of the same options."""
    config = build(flags, environment, file)
    expected = ExpectedRoles(config.serve, role_settings(config).group)
    if config.group:
        read_hostfile(Path(config.group).expanduser())
    for spec in expected.specs:
        if spec.role is Role.VERIFIER:
            folder_here(spec.model)
    return dataclasses.replace(
        config,
        state=str(config.state_path.absolute()),
        serve=tuple(map(_with_absolute_folders, config.serve)),
        group=_absolute(config.group),
        log_file=_absolute(config.log_file),
    )


def config_text(config: Config) -> str:
    """TOML of the name, the state directory and every key that is not its default."""
    default = Config(name=config.name)
    kept = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(Config)
        if field.name in ("name", "state")
        or getattr(config, field.name) != getattr(default, field.name)
    }
    return _HEADER + "".join(f"{key} = {_toml(value)}\n" for key, value in kept.items())


def read_config(file: Path) -> Config | None:
    """What `config_text` wrote; None when it cannot be read as that."""
    try:
        values = tomllib.loads(file.read_text("utf-8"))
        return Config(name=str(values["name"]), state=str(values["state"]))
    except (OSError, ValueError, KeyError):
        return None


def _with_absolute_folders(text: str) -> str:
    spec = parse_role_spec(text)
    model = _folder(spec.model)
    if spec.role is Role.PROPOSER and TARGET_MARK in model and model == spec.model:
        parts = model.rpartition(TARGET_MARK)
        model = f"{_folder(parts[0])}{TARGET_MARK}{_folder(parts[2])}"
    return f"{spec.role.value}={model}"


def _folder(name: str) -> str:
    """The absolute path of a folder here; other names as they are."""
    path = Path(name).expanduser()
    return str(path.absolute()) if name and name not in SHIPPED and path.is_dir() else name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's; DEL alone needs one there and gets none.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
