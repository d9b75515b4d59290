"""Notices when sessions begin to forget, and how much they forget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Outcome, SessionObserver
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents

if TYPE_CHECKING:
    from kakeya_fleet.engine.sessions.session import Session
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


@dataclass(slots=True)
class _Followed:
    """A session, and how many of its positions were counted as forgotten."""

    opened: OpenSession
    session: Session
    counted: int


class TruncationWatch(SessionObserver):
    """A `SessionObserver`: an event at a session's first forgotten position, counts for all.

    A fork begins with what its origin has forgotten: only what it forgets itself counts.
    """

    def __init__(self, events: SessionEvents, metrics: NodeMetrics) -> None:
        self._events = events
        self._metrics = metrics
        self._followed: dict[str, _Followed] = {}

    def opened(self, session: OpenSession) -> None:
        """Follows a session."""
        own = session.record.session
        self._followed[session.session_id] = _Followed(session, own, own.forgotten_count)

    def prefilled(self, session_id: str, token_count: int, seconds: float) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session_id)

    def committed(self, session_id: str, token_count: int) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session_id)

    def idle(self, session_id: str) -> None:
        """Counts what was committed for a client that left before it heard of it."""
        self._look(session_id)

    def ended(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Follows it no more."""
        self._followed.pop(session_id, None)

    def _look(self, session_id: str) -> None:
        followed = self._followed.get(session_id)
        if followed is None:
            return
        forgotten = followed.session.forgotten_count
        if forgotten <= followed.counted:
            # A cache that is made anew computes again what was forgotten before.
            return
        if not followed.counted:
            self._metrics.truncated_sessions.inc()
            spec = followed.session.spec
            self._events.truncated(followed.opened, spec.sink, spec.window)
        self._metrics.forgotten_tokens.inc(forgotten - followed.counted)
        followed.counted = forgotten
