"""The options of a service's node, checked as `fleet join` checks them, with absolute paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.engine.models.gguf.source import PUBLISHED, names_gguf
from kakeya_fleet.engine.models.model_folder import SHIPPED, folder_here
from kakeya_fleet.engine.proposers.loading import TARGET_MARK
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.app.ground import group_of
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
    model = _folder(spec.model)
    if spec.role is Role.PROPOSER and TARGET_MARK in model and model == spec.model:
        parts = model.rpartition(TARGET_MARK)
        model = f"{_folder(parts[0])}{TARGET_MARK}{_folder(parts[2])}"
    return f"{spec.role.value}={model}"


def _folder(name: str) -> str:
    """The absolute path of a folder or a GGUF file here; other names as they are."""
    path = Path(name).expanduser()
    is_here = path.is_dir() or (path.is_file() and names_gguf(name))
    return str(path.absolute()) if name and name not in (*SHIPPED, *PUBLISHED) and is_here else name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""
