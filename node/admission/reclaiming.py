"""Whose places are taken back when there are too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar


class Occupied(Protocol):
    """A place that somebody holds without a use that could be seen."""

    @property
    def caller(self) -> str:
        """Who holds it."""
        ...

    @property
    def silent_ms(self) -> float:
        """Milliseconds since it was last of use."""
        ...


Place = TypeVar("Place", bound=Occupied)


def to_reclaim(places: Collection[Place], count: int) -> list[Place]:
    """`count` of them, or all: always one of the caller who holds the most then.

    So a caller with fewer places than any other loses none before those have as few. Of a
    caller's the longest silent goes first.
    """
    held = Counter(each.caller for each in places)
    by_caller: dict[str, list[Place]] = {}
    for each in sorted(places, key=lambda each: each.silent_ms):
        by_caller.setdefault(each.caller, []).append(each)
    taken = []
    for _ in range(min(count, len(places))):
        caller = max(held, key=lambda name: (held[name], name))
        held[caller] -= 1
        taken.append(by_caller[caller].pop())
    return taken
