"""Every key of a node's configuration, with its default and its meaning, of `Config` itself.

The reference of keys (docs/configuration.md) and the file that `fleet init` writes are made of it.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Mapping

from kakeya_fleet.node.config.config import Config

FOUND_OUT: Mapping[str, str] = {"name": "the host's name"}
"""Defaults that are found out when the node starts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """One key; `kind` is its type as `Config` has it, `default` None for one of `FOUND_OUT`."""

    name: str
    kind: str
    default: object
    meaning: str


def keys() -> tuple[Key, ...]:
    """All of them, in the order of `Config`."""
    said = meanings()
    return tuple(
        Key(
            field.name,
            str(field.type),
            None if field.name in FOUND_OUT else field.default,
            said[field.name],
        )
        for field in dataclasses.fields(Config)
    )


def meanings() -> dict[str, str]:
    """The comment below each field of `Config`, on one line."""
    (config,) = ast.parse(inspect.getsource(Config)).body
    assert isinstance(config, ast.ClassDef)
    found = {}
    for field, comment in zip(config.body, config.body[1:], strict=False):
        match field, comment:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split())
    return found
