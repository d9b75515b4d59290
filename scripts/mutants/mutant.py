"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: `old` is in `file` exactly once, and `new` in its place breaks a promise.

    `tests` are the arguments of pytest that select the fewest tests that find it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
