"""One observer in the place of several."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.engine.speculation.generation_report import BlockTiming
from kakeya_fleet.node.roles.verifier.observer import Finished, Outcome, SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class AllObservers(SessionObserver):
    """Tells each of its observers what it hears, in their order."""

    def __init__(self, observers: Sequence[SessionObserver]) -> None:
        self._observers = tuple(observers)

    def opened(self, session: OpenSession) -> None:
        """See `SessionObserver.opened`."""
        for observer in self._observers:
            observer.opened(session)

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """See `SessionObserver.prefilled`."""
        for observer in self._observers:
            observer.prefilled(session, token_count, seconds)

    def began(self, session: OpenSession) -> None:
        """See `SessionObserver.began`."""
        for observer in self._observers:
            observer.began(session)

    def committed(self, session: OpenSession, token_count: int) -> None:
        """See `SessionObserver.committed`."""
        for observer in self._observers:
            observer.committed(session, token_count)

    def block(self, session: OpenSession, block: BlockTiming) -> None:
        """See `SessionObserver.block`."""
        for observer in self._observers:
            observer.block(session, block)

    def finished(self, session: OpenSession, finished: Finished) -> None:
        """See `SessionObserver.finished`."""
        for observer in self._observers:
            observer.finished(session, finished)

    def left(self, session: OpenSession) -> None:
        """See `SessionObserver.left`."""
        for observer in self._observers:
            observer.left(session)

    def idle(self, session: OpenSession) -> None:
        """See `SessionObserver.idle`."""
        for observer in self._observers:
            observer.idle(session)

    def rested(self, session: OpenSession) -> None:
        """See `SessionObserver.rested`."""
        for observer in self._observers:
            observer.rested(session)

    def ended(self, session: OpenSession, outcome: Outcome) -> None:
        """See `SessionObserver.ended`."""
        for observer in self._observers:
            observer.ended(session, outcome)
