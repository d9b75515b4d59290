"""Values of a message's header, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, TypeVar

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"
Header: TypeAlias = Mapping[str, Json]

Member = TypeVar("Member", bound=StrEnum)


class MalformedMessage(Exception):
    """Bytes or a header that no member of a group of this version sends."""


def integer(header: Header, name: str) -> int:
    """The whole number `name`. Raises `MalformedMessage`, as all of these."""
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedMessage(f"{name} is {value!r}, no whole number")
    return value


def text(header: Header, name: str) -> str:
    """The text `name`."""
    value = header.get(name)
    if not isinstance(value, str):
        raise MalformedMessage(f"{name} is {value!r}, no text")
    return value


def member(header: Header, name: str, of: type[Member]) -> Member:
    """The one of the words `of` that `name` is."""
    value = text(header, name)
    found = next((each for each in of if each.value == value), None)
    if found is None:
        raise MalformedMessage(f"{name} is {value!r}, none of {', '.join(of)}")
    return found


def flag(header: Header, name: str) -> bool:
    """The truth value `name`."""
    value = header.get(name)
    if not isinstance(value, bool):
        raise MalformedMessage(f"{name} is {value!r}, neither true nor false")
    return value


def section(header: Header, name: str) -> Header:
    """The object `name`."""
    return as_section(header.get(name))


def as_section(value: Json) -> Header:
    """`value`, an object."""
    if not isinstance(value, Mapping):
        raise MalformedMessage(f"{value!r} is no object")
    return value


def sections(header: Header, name: str) -> list[Header]:
    """The objects of the list `name`."""
    return [as_section(value) for value in items(header, name)]


def items(header: Header, name: str) -> list[Json]:
    """The list `name`."""
    value = header.get(name)
    if not isinstance(value, list):
        raise MalformedMessage(f"{name} is {value!r}, no list")
    return value


def integers(header: Header, name: str) -> list[int]:
    """The whole numbers of the list `name`."""
    found = items(header, name)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in found):
        raise MalformedMessage(f"{name} holds something else than whole numbers")
    return [value for value in found if isinstance(value, int)]
