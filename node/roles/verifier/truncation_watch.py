"""Notices when sessions begin to forget, and how much they forget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Outcome, SessionObserver
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents

if TYPE_CHECKING:
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class TruncationWatch(SessionObserver):
    """A `SessionObserver`: an event at a session's first forgotten position, counts for all.

    A fork begins with what its origin has forgotten: only what it forgets itself counts.
    """

    def __init__(self, events: SessionEvents, metrics: NodeMetrics) -> None:
        self._events = events
        self._metrics = metrics
        # How many positions of each session were counted as forgotten.
        self._counted: dict[str, int] = {}

    def opened(self, session: OpenSession) -> None:
        """Follows a session."""
        self._counted[session.session_id] = session.record.session.forgotten_count

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session)

    def committed(self, session: OpenSession, token_count: int) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session)

    def idle(self, session: OpenSession) -> None:
        """Counts what was committed for a client that left before it heard of it."""
        self._look(session)

    def ended(self, session: OpenSession, outcome: Outcome) -> None:  # noqa: ARG002
        """Follows it no more."""
        self._counted.pop(session.session_id, None)

    def _look(self, session: OpenSession) -> None:
        counted = self._counted.get(session.session_id)
        forgotten = session.record.session.forgotten_count
        if counted is None or forgotten <= counted:
            # A cache that is made anew computes again what was forgotten before.
            return
        if not counted:
            self._metrics.truncated_sessions.inc()
            spec = session.record.session.spec
            self._events.truncated(session, spec.sink, spec.window)
        self._metrics.forgotten_tokens.inc(forgotten - counted)
        self._counted[session.session_id] = forgotten
