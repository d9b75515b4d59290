"""Names of enums, and the contract's numbers that they stand for.

The contract names an enum's values after it, as in ROLE_VERIFIER; here that is `verifier`.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Protocol, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from kakeya.errors import BadRequest

EnumT = TypeVar("EnumT", bound=StrEnum)
NumberT = TypeVar("NumberT", bound=int)
_NumberT = TypeVar("_NumberT", bound=int, covariant=True)


class ContractEnum(Protocol[_NumberT]):
    """An enum of the stubs."""

    DESCRIPTOR: EnumDescriptor

    def Value(self, name: str) -> _NumberT:  # noqa: N802
        """The number of a name as the contract has it."""


def enum_value(kind: type[EnumT], enum: EnumDescriptor, number: int) -> EnumT:
    """The member named by `number`; UNKNOWN for 0 and for numbers newer than this client."""
    value = enum.values_by_number.get(number)
    name = value.name.removeprefix(_prefix(enum)) if value is not None else ""
    return kind.__members__.get(name, kind["UNKNOWN"])


def enum_number(
    field: str, kind: type[StrEnum], enum: ContractEnum[NumberT], given: object
) -> NumberT:
    """The number of a name, for the request's `field`; that of UNSPECIFIED for None.

    Raises BadRequest for what is no name of `kind` that can be asked for.
    """
    known = [each.value for each in kind if each.name != "UNKNOWN"]
    if given is not None and given not in known:
        raise BadRequest(
            f"{field} is one of {', '.join(known)}, not {given!r}", metadata={"field": field}
        )
    return number_of(enum, None if given is None else kind(given))


def number_of(enum: ContractEnum[NumberT], member: Enum | None) -> NumberT:
    """The number of a member that is named as in the contract; that of UNSPECIFIED for None.

    Raises ValueError for a name that the contract does not have.
    """
    name = "UNSPECIFIED" if member is None else member.name
    return enum.Value(_prefix(enum.DESCRIPTOR) + name)


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
