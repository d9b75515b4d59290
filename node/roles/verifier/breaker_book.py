"""The circuit breakers of one node: one for each proposer that its sessions use."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.breaker import SOUND, Breaker
from kakeya_fleet.engine.speculation.pace import Pace
from kakeya_fleet.engine.speculation.state import SpeculationState


def _ignore(_key: ProposerKey, _breaker: Breaker) -> None:
    """The default of `on_change`."""


class BreakerBook:
    """Breakers by (node, proposer model), shared by all sessions of this node.

    One that has cooled down shuts out no more: the planner may pair again, and
    the first draft of the pair is the trial. Faults are those of one incarnation: a
    node that was started anew, or a proposer of this node that was opened anew,
    begins with closed breakers.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        incarnation_of: Callable[[ProposerKey], Hashable | None],
        on_change: Callable[[ProposerKey, Breaker], None] = _ignore,
    ) -> None:
        """`incarnation_of` tells what serves a proposer now; None for nothing, which has no faults.

        `on_change` hears of each breaker that opens or closes.
        """
        self._on_change = on_change
        self._clock = clock
        self._incarnation_of = incarnation_of
        self._breakers: dict[ProposerKey, tuple[Hashable, Breaker]] = {}

    def get(self, key: ProposerKey) -> Breaker:
        """The breaker of a proposer; a closed one before anything is known."""
        known = self._breakers.get(key)
        return known[1] if known is not None and known[0] == self._incarnation_of(key) else SOUND

    def put(self, key: ProposerKey, breaker: Breaker) -> None:
        """Stores what a draft made of the breaker."""
        incarnation = self._incarnation_of(key)
        if incarnation is None:
            # Removed with a draft in flight, which is no fault of what is served next.
            self._breakers.pop(key, None)
            return
        before = self.get(key)
        if breaker is SOUND or breaker == SOUND:
            self._breakers.pop(key, None)
        else:
            self._breakers[key] = (incarnation, breaker)
        if breaker.closed is not before.closed:
            self._on_change(key, breaker)

    def shut_out(self) -> frozenset[ProposerKey]:
        """The proposers whose breaker is open now."""
        now = self._clock()
        return frozenset(
            key
            for key, (incarnation, breaker) in self._breakers.items()
            if incarnation == self._incarnation_of(key) and not breaker.allows(now)
        )


class SharedSpeculationState(SpeculationState):
    """A session's pace with a proposer, and the breaker that all sessions share.

    Without `judging` the pace is measured, and never drops the proposer.
    """

    __slots__ = ("_book", "_detached", "_judging", "_key", "_pace")

    def __init__(
        self, book: BreakerBook, key: ProposerKey, *, judging: bool, pace: Pace | None = None
    ) -> None:
        """`pace` is what is known of the pair before its first block."""
        self._book = book
        self._key = key
        self._judging = judging
        self._detached = False
        super().__init__(breaker=book.get(key), pace=pace or Pace())

    @property
    def breaker(self) -> Breaker:
        """The breaker of the proposer, as the last draft of any session left it."""
        return self._book.get(self._key)

    @breaker.setter
    def breaker(self, breaker: Breaker) -> None:
        if not self._detached:
            self._book.put(self._key, breaker)

    def detach(self) -> None:
        """Tells the other sessions no more: the source is closed from this side.

        The drafts that this takes with it are no fault of the proposer.
        """
        self._detached = True

    @property
    def pace(self) -> Pace:
        """What was measured of the pair."""
        return self._pace

    @pace.setter
    def pace(self, pace: Pace) -> None:
        if pace.dropped and not self._judging:
            pace = replace(pace, retry_after_blocks=0)
        self._pace = pace
