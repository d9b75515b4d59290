"""What a call on a session that has ended is told."""

from __future__ import annotations

from kakeya_fleet.engine.errors import EngineError, GroupLost, SessionNotFound

LOST_WITH_GROUP = "lost with a rank of its verifier's group"
"""How a session ended whose keys and values were with a group that is no more."""


def ended_error(subject: str, reason: str, **metadata: str) -> EngineError:
    """`SessionNotFound` that says how `subject` ended; `GroupLost` when that took the verifier."""
    message = f"{subject} was {reason}; open a new one and append the history"
    if reason == LOST_WITH_GROUP:
        return GroupLost(f"{message}, on another node or here once the group is back", **metadata)
    return SessionNotFound(message, **metadata)
