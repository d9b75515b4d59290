"""Which of the sessions that are known a person means. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya import SessionState
from kakeya_fleet.node.cli.sessions.listing import Listed

SHOWN_CHARACTERS = 12
"""Of a session's id in a table: no two of a fleet begin alike."""
RUNNING = (SessionState.APPENDING, SessionState.GENERATING)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """What was typed and names none of them, and why."""

    typed: str
    why: str


def named(sessions: Sequence[Listed], typed: Sequence[str]) -> tuple[list[Listed], list[Unmatched]]:
    """Those whose id is typed, or begins so; each once."""
    found: dict[str, Listed] = {}
    unmatched = []
    for text in typed:
        whole = [each for each in sessions if each.info.session_id == text]
        matching = whole or [each for each in sessions if each.info.session_id.startswith(text)]
        if len(matching) == 1:
            found[matching[0].info.session_id] = matching[0]
        elif matching:
            unmatched.append(Unmatched(text, f"{len(matching)} sessions begin so"))
        else:
            unmatched.append(Unmatched(text, "no session is called so"))
    return list(found.values()), unmatched


def idle_for(sessions: Sequence[Listed], seconds: float) -> list[Listed]:
    """Those in which nothing has run for so long."""
    return [
        each
        for each in sessions
        if each.info.state not in RUNNING and each.info.idle_seconds >= seconds
    ]
