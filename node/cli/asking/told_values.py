"""What nodes tell, made fit to be shown.

A node is asked at the address that its card names, and whoever answers there may tell
anything: its texts are put on one line each, and a number that is none is an answer outside
the contract.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, TypeVar

from kakeya import UnexpectedError
from kakeya_fleet.node.cli.terminal.printable import on_one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ValueT = TypeVar("ValueT", bound="DataclassInstance")


def sanitized(told: ValueT) -> ValueT:
    """The value with each text in it `on_one_line`; `told` itself where all are.

    Values and tuples in it are walked. Raises `UnexpectedError` for NaN and infinities.
    """
    changed = {}
    for field in dataclasses.fields(told):
        value = getattr(told, field.name)
        clean = _clean(field.name, value)
        if clean is not value:
            changed[field.name] = clean
    return dataclasses.replace(told, **changed) if changed else told


def _clean(field: str, value: object) -> object:
    # An enumeration's members are texts too, of this program's own.
    if type(value) is str:
        return on_one_line(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UnexpectedError(f"the node told {value} for {field}, which is no quantity")
    if isinstance(value, tuple):
        clean = tuple(_clean(field, each) for each in value)
        same = all(one is other for one, other in zip(clean, value, strict=True))
        return value if same else clean
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sanitized(value)
    return value
