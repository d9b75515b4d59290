"""Notices when sessions begin to forget, and how much they forget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.engine.errors import GroupLost, SessionNotFound
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Outcome
from kakeya_fleet.node.roles.verifier.session_words import SessionWords

if TYPE_CHECKING:
    from kakeya_fleet.engine.sessions.session import Session
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.finished import Finished
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


@dataclass(slots=True)
class _Followed:
    """A session, and how many of its positions were counted as forgotten."""

    opened: OpenSession
    session: Session
    counted: int


class TruncationWatch:
    """A `SessionObserver`: an event at a session's first forgotten position, counts for all.

    A fork begins with what its origin has forgotten: only what it forgets itself counts.
    """

    def __init__(self, words: SessionWords, metrics: NodeMetrics) -> None:
        self._words = words
        self._metrics = metrics
        self._followed: dict[str, _Followed] = {}

    def opened(self, session: OpenSession) -> None:
        """Follows a session."""
        try:
            record = session.served.store.get(session.session_id)
        except (SessionNotFound, GroupLost):
            # Evicted already, in the verifier's thread; its end is told next.
            return
        followed = _Followed(session, record.session, record.session.forgotten_count)
        self._followed[session.session_id] = followed

    def prefilled(self, session_id: str, token_count: int, seconds: float) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session_id)

    def began(self, session_id: str) -> None:
        """See `SessionObserver.began`."""

    def committed(self, session_id: str, token_count: int) -> None:  # noqa: ARG002
        """Counts what was forgotten for these tokens."""
        self._look(session_id)

    def block(self, session_id: str, block: BlockTiming) -> None:
        """See `SessionObserver.block`."""

    def finished(self, session_id: str, finished: Finished) -> None:
        """See `SessionObserver.finished`."""

    def left(self, session_id: str) -> None:
        """See `SessionObserver.left`."""

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
            self._words.truncated(followed.opened, spec.sink, spec.window)
        self._metrics.forgotten_tokens.inc(forgotten - followed.counted)
        followed.counted = forgotten
