"""What one call holds of an allowance as it goes on, given back at once when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.node.admission.allowance import Allowance
from kakeya_fleet.node.admission.caller import Caller


class Holding:
    """Belongs to one call; nothing else gives back what it took."""

    def __init__(self, allowance: Allowance, caller: Caller) -> None:
        self._allowance = allowance
        self._caller = caller
        self._amount = 0

    @property
    def amount(self) -> int:
        """What it holds."""
        return self._amount

    def take(self, amount: int) -> None:
        """Holds so much more. Raises as `Allowance.take`."""
        self._allowance.take(self._caller, amount)
        self._amount += amount

    def give_back(self, amount: int) -> None:
        """Holds so much less."""
        self._allowance.give_back(self._caller, amount)
        self._amount -= amount


@contextmanager
def held_by(allowance: Allowance, caller: Caller) -> Iterator[Holding]:
    """A holding for as long as the context lasts."""
    holding = Holding(allowance, caller)
    try:
        yield holding
    finally:
        holding.give_back(holding.amount)
