"""A row of the matrix, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scripts.faults.scene import Scene


class Verdict(Enum):
    """What a row came to."""

    PASS = "pass"
    MISSED = "missed"
    NOT_RUN = "not run here"


class NotRunHere(Exception):
    """The host cannot have the fault; the message says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured, in words and in numbers, and whether it is within the criterion."""

    passed: bool
    measured: str
    figures: Mapping[str, object] = field(default_factory=dict)


Act = Callable[["Scene"], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Row:
    """A fault of the matrix, in its words, and how it is made here.

    `seconds` bounds it, starts of agents on a busy machine included.
    """

    number: int
    fault: str
    criterion: str
    act: Act
    seconds: float = 180.0
