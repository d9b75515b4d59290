"""How sessions end, and what a call on one that has ended is told."""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum

from kakeya_fleet.engine.errors import EngineError, GroupLost, SessionNotFound

REMEMBERED_ENDS = 4096
"""Ids of ended sessions that are remembered, to say how they ended."""


class EndReason(StrEnum):
    """How a session ended; completes the sentence "the session was ..."."""

    CLOSED = "closed"
    IDLE = "evicted after its time to live"
    MEMORY = "evicted to make room"
    INVARIANT = "ended by a broken promise"
    GROUP = "lost with a rank of its verifier's group"
    DRAINED = "ended as its node left"
    REMOVED = "ended as its node stopped serving the model"


def ended_error(subject: str, reason: str, **metadata: str) -> EngineError:
    """`SessionNotFound` that says how `subject` ended; `GroupLost` when that took the verifier."""
    message = f"{subject} was {reason}; open a new one and append the history"
    if reason == EndReason.GROUP:
        return GroupLost(f"{message}, on another node or here once the group is back", **metadata)
    return SessionNotFound(message, **metadata)


class EndedSessions:
    """How the latest `REMEMBERED_ENDS` sessions ended. Used by one thread at a time.

    Their owners alone are told: to everybody else they never were.
    """

    def __init__(self) -> None:
        self._reasons: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def add(self, session_id: str, reason: str, owner: str) -> None:
        """A session of `owner` has ended."""
        self._reasons[session_id] = (reason, owner)
        if len(self._reasons) > REMEMBERED_ENDS:
            self._reasons.popitem(last=False)

    def error(self, session_id: str, owner: str | None = None) -> EngineError:
        """What a call on a session that is not there is told; `owner` calls, None for the node."""
        # Whatever a client sends as an id comes back in messages.
        named = session_id[:64]
        reason, whose = self._reasons.get(session_id, ("", ""))
        if reason and owner in (None, whose):
            return ended_error(f"session {named!r}", reason, session_id=named)
        return SessionNotFound(
            f"session {named!r} is not known to this node; open a new one and append the history",
            session_id=named,
        )
