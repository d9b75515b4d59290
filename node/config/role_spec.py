"""What a node is told to serve: `verifier=MODEL`, `proposer=MODEL[@TARGET]`, `archive=AMOUNT`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.quantities import bytes_text, parse_bytes
from kakeya_fleet.node.errors import NodeError

SERVED_ROLES = (Role.VERIFIER, Role.PROPOSER, Role.ARCHIVE)

# Less keeps no session's first positions of a model of use.
LEAST_ARCHIVE_BYTES = 1 << 20


class BadRoleSpec(NodeError):
    """A role or model to serve is not written as it must be."""

    reason = "BAD_ROLE_SPEC"


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One model in one role; `model` as `engine.models.model_folder` or the proposers name it.

    Of an archive `model` is the amount of memory, such as "512MiB". `weights` are one of
    `engine.models.weight_choice.WEIGHTS`; empty for those that the node was started with.
    """

    role: Role
    model: str
    weights: str = ""


def parse_role_spec(text: str) -> RoleSpec:
    """The role and model of "ROLE=MODEL". Raises `BadRoleSpec`."""
    name, separator, model = text.partition("=")
    role = next((role for role in SERVED_ROLES if role.value == name.strip()), None)
    if not separator or role is None or not model.strip():
        raise BadRoleSpec(
            f"{text!r} names no role and model",
            "write verifier=MODEL, proposer=ngram, proposer=MODEL@TARGET or archive=512MiB; "
            "MODEL is smollm2, tiny, a folder, a .gguf or a hub id",
            spec=text[:128],
        )
    if role is Role.ARCHIVE:
        archive_bytes(model.strip())
    return RoleSpec(role, model.strip())


def archive_bytes(amount: str) -> int:
    """The bytes of `archive=AMOUNT`. Raises `BadRoleSpec`."""
    mend = "write archive=AMOUNT, such as archive=512MiB or archive=2GiB"
    try:
        budget_bytes = parse_bytes(amount)
    except ValueError as error:
        raise BadRoleSpec(f"in archive={amount[:64]} {error}", mend, spec=amount[:128]) from error
    if budget_bytes < LEAST_ARCHIVE_BYTES:
        raise BadRoleSpec(f"archive={amount} is less than 1MiB", mend, spec=amount)
    return budget_bytes


def check_memory(budget_bytes: int) -> None:
    """Raises `BadRoleSpec` for an archive that is larger than this machine's memory."""
    total = system_memory.total_bytes()
    if budget_bytes > total:
        raise BadRoleSpec(
            f"an archive of {bytes_text(budget_bytes)} is more than the {bytes_text(total)} of"
            " this machine",
            "give what it has to spare",
            spec="archive",
        )


def check_together(specs: Sequence[RoleSpec]) -> None:
    """Raises `BadRoleSpec` unless one node may serve all of them."""
    for index, spec in enumerate(specs):
        if any((spec.role, spec.model) == (each.role, each.model) for each in specs[:index]):
            raise BadRoleSpec(
                f"{spec.role.value}={spec.model} is given twice", "give it once", spec=spec.model
            )
    archives = [spec for spec in specs if spec.role is Role.ARCHIVE]
    if len(archives) > 1:
        raise BadRoleSpec(
            f"{len(archives)} archives are given", "give one amount for all of it", spec="archive"
        )


def named_twice(spec: RoleSpec, model_id: str) -> BadRoleSpec:
    """Two models to serve have one name."""
    return BadRoleSpec(
        f"two models to serve are both named {model_id!r}, the second at {spec.model}",
        "requests tell them apart by that name: rename one of the folders",
        spec=spec.model,
    )
