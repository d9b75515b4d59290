"""What a check found out: how bad it is, what it is, its cause and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, and is slower or nearer to failing than it has to be."""
    PROBLEM = "problem"
    """Something that the fleet needs does not work."""
    NOT_RUN = "not_run"
    """The check could not be made on this machine; the cause says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a check. `what` is a phrase, `cause` and `mend` are sentences or empty."""

    check: str
    level: Level
    what: str
    cause: str = ""
    mend: str = ""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, what)


def not_run(check: str, cause: str) -> Finding:
    """The check could not be made, because of `cause`, a sentence."""
    return Finding(check, Level.NOT_RUN, "not run here", cause)


def listed(names: Iterable[str], most: int = 4) -> str:
    """The first few of them, and how many more there are: `a, b and 3 more`."""
    every = list(names)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"


def counted(count: int, noun: str) -> str:
    """`1 peer`, `2 peers`, `2 addresses`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
