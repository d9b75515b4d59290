"""Places of sessions, which callers share."""

from __future__ import annotations

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.rpc.refusals import TooManySessions


class SessionPlaces:
    """What the registry of sessions asks; their owners are callers. Any thread may call."""

    def __init__(self, allowances: Allowances) -> None:
        self._places = allowances.share("sessions.at_once", TooManySessions)

    def would_refuse(self, owner: str, after: str | None = None) -> bool:
        """Whether `take` would raise now, or once `after` had given one back."""
        ended = Caller(after) if after is not None else None
        return self._places.would_refuse(Caller(owner), after=ended) is not None

    def take(self, owner: str) -> None:
        """One more is the owner's. Raises `TooManySessions`."""
        self._places.take(Caller(owner))

    def give_back(self, owner: str) -> None:
        """One of the owner's is free again."""
        self._places.give_back(Caller(owner))
