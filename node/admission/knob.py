"""A bound that people can read: its value, and beside it the formula or the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

Value = TypeVar("Value", int, float)

_WHY = "why"
_SUFFIXES = ("bytes", "seconds", "tokens", "values", "a_second")


class Unit(StrEnum):
    """What a knob counts, as the end of its name says."""

    PLACES = "places"
    BYTES = "bytes"
    SECONDS = "seconds"
    TOKENS = "tokens"
    VALUES = "values"
    A_SECOND = "a_second"


@dataclass(frozen=True, slots=True)
class Knob:
    """One bound. `name` is GROUP.FIELD."""

    name: str
    value: float
    unit: Unit
    why: str


def knob(default: Value, why: str) -> Value:
    """A field of a frozen group of bounds: its value, and why it is that."""
    told: Value = field(default=default, metadata={_WHY: why})
    return told


def knobs(name: str, group: Any) -> Iterator[Knob]:
    """Those of a group, in their order; `name` begins their names."""
    for each in fields(group):
        yield Knob(
            name=f"{name}.{each.name}",
            value=getattr(group, each.name),
            unit=_unit(each.name),
            why=each.metadata[_WHY],
        )


def _unit(name: str) -> Unit:
    ending = next((each for each in _SUFFIXES if name.endswith(each)), None)
    return Unit(ending) if ending is not None else Unit.PLACES
