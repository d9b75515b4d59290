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

    def prefilled(self, session_id: str, token_count: int, seconds: float) -> None:
        """See `SessionObserver.prefilled`."""
        for observer in self._observers:
            observer.prefilled(session_id, token_count, seconds)

    def began(self, session_id: str) -> None:
        """See `SessionObserver.began`."""
        for observer in self._observers:
            observer.began(session_id)

    def committed(self, session_id: str, token_count: int) -> None:
        """See `SessionObserver.committed`."""
        for observer in self._observers:
            observer.committed(session_id, token_count)

    def block(self, session_id: str, block: BlockTiming) -> None:
        """See `SessionObserver.block`."""
        for observer in self._observers:
            observer.block(session_id, block)

    def finished(self, session_id: str, finished: Finished) -> None:
        """See `SessionObserver.finished`."""
        for observer in self._observers:
            observer.finished(session_id, finished)

    def left(self, session_id: str) -> None:
        """See `SessionObserver.left`."""
        for observer in self._observers:
            observer.left(session_id)

    def idle(self, session_id: str) -> None:
        """See `SessionObserver.idle`."""
        for observer in self._observers:
            observer.idle(session_id)

    def ended(self, session_id: str, outcome: Outcome) -> None:
        """See `SessionObserver.ended`."""
        for observer in self._observers:
            observer.ended(session_id, outcome)
