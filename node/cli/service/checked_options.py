"""The options of a service's node, checked as `fleet join` checks them, with absolute paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.engine.models.model_folder import folder_here
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.app.ground import group_of
from kakeya_fleet.node.cli.fleet.model_names import name_to_load
from kakeya_fleet.node.config.config import Config, build
from kakeya_fleet.node.config.role_spec import parse_role_spec
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.groups.group_settings import read_hostfile


def checked_config(
    flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None
) -> Config:
    """The node's configuration. Raises what `fleet join` raises of the same options."""
    config = build(flags, environment, file)
    expected = ExpectedRoles(config.serve, group_of(config))
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


def _with_absolute_folders(text: str) -> str:
    spec = parse_role_spec(text)
    return f"{spec.role.value}={name_to_load(spec.model)}"


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""
