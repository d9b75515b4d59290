"""What a node is told to serve: `verifier=MODEL` or `proposer=MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.card import Role
from node.errors import NodeError

SERVED_ROLES = (Role.VERIFIER, Role.PROPOSER)


class BadRoleSpec(NodeError):
    """A role or model to serve is not written as it must be."""

    reason = "BAD_ROLE_SPEC"


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One model in one role; `model` as `engine.model_folder` or the proposers name it."""

    role: Role
    model: str


def parse_role_spec(text: str) -> RoleSpec:
    """The role and model of "ROLE=MODEL". Raises `BadRoleSpec`."""
    name, separator, model = text.partition("=")
    role = next((role for role in SERVED_ROLES if role.value == name.strip()), None)
    if not separator or role is None or not model.strip():
        raise BadRoleSpec(
            f"{text!r} names no role and model",
            "write verifier=MODEL or proposer=ngram; MODEL is tiny, a folder or a hub id",
            spec=text[:128],
        )
    return RoleSpec(role, model.strip())


def parse_role_specs(texts: Sequence[str]) -> list[RoleSpec]:
    """All of them, none twice. Raises `BadRoleSpec`."""
    specs = [parse_role_spec(text) for text in texts]
    for index, spec in enumerate(specs):
        if spec in specs[:index]:
            raise BadRoleSpec(
                f"{spec.role.value}={spec.model} is given twice", "give it once", spec=spec.model
            )
    return specs
