"""Which holders of slabs to part with, so that enough bytes come free.

Slabs that several holders share come free with the last of them, so what a
holder frees depends on who goes with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kakeya_fleet.engine.memory.slab_pool import Slab

Holding = Sequence[Slab[Any]]


class _Leaving:
    """Slabs on their way back to the pool, and the bytes that come free."""

    def __init__(self) -> None:
        self._counts: Counter[Slab[Any]] = Counter()
        self.freed_bytes = 0

    def add(self, holding: Holding, times: int = 1) -> None:
        """One more holder goes, or with `times` -1 one stays after all."""
        for slab in holding:
            leaving = self._counts[slab]
            self.freed_bytes += slab.freed_bytes(leaving + times) - slab.freed_bytes(leaving)
            self._counts[slab] = leaving + times


def freed_together(holdings: Iterable[Holding]) -> int:
    """Bytes that count no more once all of `holdings` are given back."""
    leaving = _Leaving()
    for holding in holdings:
        leaving.add(holding)
    return leaving.freed_bytes


def chosen_to_free(holdings: Sequence[Holding], nbytes: int) -> list[int] | None:
    """Indices of holdings that free at least `nbytes` together, None if all would not.

    `holdings` are in the order in which they should go. Takes the first that are
    enough, and leaves out every one of them, the last first, without which the
    others still are: none goes in vain.
    """
    leaving = _Leaving()
    chosen: list[int] = []
    for index, holding in enumerate(holdings):
        if leaving.freed_bytes >= nbytes:
            break
        leaving.add(holding)
        chosen.append(index)
    if leaving.freed_bytes < nbytes:
        return None
    for index in reversed(chosen):
        leaving.add(holdings[index], times=-1)
        if leaving.freed_bytes < nbytes:
            leaving.add(holdings[index])
        else:
            chosen = [other for other in chosen if other != index]
    return chosen
