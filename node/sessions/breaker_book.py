"""The circuit breakers of one node: one for each proposer that its sessions use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.speculation.breaker import Breaker
from engine.speculation.pace import Pace
from engine.speculation.state import SpeculationState

ProposerKey = tuple[str, str]
"""Node id and model id of a proposer."""


class BreakerBook:
    """Breakers by (node, proposer model), shared by all sessions of this node.

    One that has cooled down shuts out no more: the planner may pair again, and
    the first draft of the pair is the trial.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._breakers: dict[ProposerKey, Breaker] = {}

    def get(self, key: ProposerKey) -> Breaker:
        """The breaker of a proposer; a closed one before anything is known."""
        return self._breakers.get(key, Breaker())

    def put(self, key: ProposerKey, breaker: Breaker) -> None:
        """Stores what a draft made of the breaker."""
        if breaker == Breaker():
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = breaker

    def shut_out(self) -> frozenset[str]:
        """Ids of the nodes with a proposer whose breaker is open now."""
        now = self._clock()
        return frozenset(
            node_id
            for (node_id, _model_id), breaker in self._breakers.items()
            if not breaker.allows(now)
        )


class SharedSpeculationState(SpeculationState):
    """A session's pace with a proposer, and the breaker that all sessions share.

    Without `judging` the pace is measured, and never drops the proposer.
    """

    __slots__ = ("_book", "_judging", "_key", "_pace")

    def __init__(self, book: BreakerBook, key: ProposerKey, *, judging: bool) -> None:
        self._book = book
        self._key = key
        self._judging = judging
        super().__init__(breaker=book.get(key))

    @property
    def breaker(self) -> Breaker:
        """The breaker of the proposer, as the last draft of any session left it."""
        return self._book.get(self._key)

    @breaker.setter
    def breaker(self, breaker: Breaker) -> None:
        self._book.put(self._key, breaker)

    @property
    def pace(self) -> Pace:
        """What was measured of the pair."""
        return self._pace

    @pace.setter
    def pace(self, pace: Pace) -> None:
        if pace.dropped and not self._judging:
            pace = replace(pace, retry_after_blocks=0)
        self._pace = pace
