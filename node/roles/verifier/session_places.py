"""Places of sessions, which callers share."""

from __future__ import annotations

from collections.abc import Callable

from kakeya_fleet.fleet.errors import KeyLimitReached
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.rpc.refusals import TooManySessions


def _unlimited(_owner: str) -> int:
    """The default of `most_of`."""
    return 0


class SessionPlaces:
    """What the registry of sessions asks; their owners are callers. Any thread may call."""

    def __init__(self, allowances: Allowances, most_of: Callable[[str], int] = _unlimited) -> None:
        """`most_of` an owner is how many sessions it may have of its own; 0 for no limit."""
        self._places = allowances.share("sessions.at_once", TooManySessions)
        self._most_of = most_of

    def would_refuse(self, owner: str, after: str | None = None) -> bool:
        """Whether `take` would raise now, or once `after` had given one back."""
        ended = Caller(after) if after is not None else None
        held = self._places.held(Caller(owner)) - (after == owner)
        if self._has_all(owner, held):
            return True
        return self._places.would_refuse(Caller(owner), after=ended) is not None

    def take(self, owner: str) -> None:
        """One more is the owner's. Raises `TooManySessions`, `KeyLimitReached`."""
        if self._has_all(owner, self._places.held(Caller(owner))):
            most = self._most_of(owner)
            raise KeyLimitReached(
                f"the key has {most} sessions on this node, as many as it may",
                limit="sessions",
                most=str(most),
            )
        self._places.take(Caller(owner))

    def give_back(self, owner: str) -> None:
        """One of the owner's is free again."""
        self._places.give_back(Caller(owner))

    def _has_all(self, owner: str, held: int) -> bool:
        most = self._most_of(owner)
        return 0 < most <= held
