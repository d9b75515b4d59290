"""The leader's picture of the slabs of the ranks' pools.

Bytes are those of rank 0's part: every rank holds as many, on its own host. What
the leader gives back counts at once; the ranks do it before their next command,
and until their next answer what is shown is what they will have then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


def _clean(_payload: None) -> None:
    """There is nothing in a picture of a slab."""


class MirroredPool(SlabPool[None]):
    """Counts what the ranks' pools count. Only its budget is set here."""

    def __init__(self, on_budget: Callable[[int | None], None]) -> None:
        """`on_budget` hears of every new budget, in the thread that sets it."""
        super().__init__(_clean)
        self._on_budget = on_budget

    @property
    def budget_bytes(self) -> int | None:
        """Bytes that the sessions may take on each rank; None without a limit."""
        return super().budget_bytes

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int | None) -> None:
        with self._lock:
            self._budget_bytes = budget_bytes
        self._on_budget(budget_bytes)

    def mirror(self, held_bytes: int, reserved_bytes: int) -> None:
        """What the ranks' pools count now."""
        with self._lock:
            self._held_bytes = held_bytes
            self._reserved_bytes = reserved_bytes


@dataclass(frozen=True, slots=True)
class ToldSlab:
    """What the ranks say of one slab: its number, its verifier's, and who holds it."""

    number: int
    verifier: int
    nbytes: int
    holders: int
    copies_reserved: int


class MirroredSlabs:
    """The slabs by their numbers, as the ranks told of them last, and as they will be."""

    def __init__(self, pools: Mapping[int, MirroredPool]) -> None:
        """`pools` by the number of the verifier."""
        self._pools = pools
        self._slabs: dict[int, Slab[None]] = {}
        self._told: dict[int, ToldSlab] = {}
        self._ahead: set[int] = set()

    def tell(self, changed: Iterable[ToldSlab]) -> None:
        """Takes what changed. What was given back ahead of the ranks is undone: see `give_back`."""
        for number in self._ahead & self._slabs.keys():
            self._set(self._told[number])
        self._ahead.clear()
        for told in changed:
            if told.number not in self._slabs:
                self._slabs[told.number] = Slab(None, told.number, told.nbytes)
            self._told[told.number] = told
            self._set(told)
            if not told.holders:
                del self._slabs[told.number], self._told[told.number]

    def of(self, numbers: Iterable[int]) -> tuple[Slab[None], ...]:
        """The slabs of these numbers."""
        return tuple(self._slabs[number] for number in numbers)

    def give_back(self, numbers: Iterable[int]) -> None:
        """A cache that held these is released: ahead of the ranks, until they say so."""
        for number in numbers:
            self._ahead.add(number)
            self._pools[self._told[number].verifier].give_back(self._slabs[number], keep=False)

    def _set(self, told: ToldSlab) -> None:
        slab = self._slabs[told.number]
        slab.holders, slab.copies_reserved = told.holders, told.copies_reserved
