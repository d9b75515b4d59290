"""The configuration that a service's node reads, as TOML beside its state.

It stands alone: what the command line, the variables and the files say at install, with
every path absolute, since a service starts elsewhere and with another environment.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

from kakeya_fleet.node.config.config import Config
from kakeya_fleet.node.config.toml import toml_value

CONFIG_NAME = "service.toml"
_HEADER = """\
# What the service of this node starts with, written by `fleet service install`. Keys:
# docs/configuration.md. A change counts from the next start on.
"""


def config_text(config: Config) -> str:
    """TOML of the name, the state directory and every key that is not its default."""
    default = Config(name=config.name)
    kept = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(Config)
        if field.name in ("name", "state")
        or getattr(config, field.name) != getattr(default, field.name)
    }
    return _HEADER + "".join(f"{key} = {toml_value(value)}\n" for key, value in kept.items())


def read_config(file: Path) -> Config | None:
    """Name, state and log of what `config_text` wrote; None when it cannot be read as that."""
    try:
        values = tomllib.loads(file.read_text("utf-8"))
        log_file = str(values.get("log_file", ""))
        return Config(name=str(values["name"]), state=str(values["state"]), log_file=log_file)
    except (OSError, ValueError, KeyError):
        return None
