"""Closes of sessions that a retry with the same request id finds done."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from kakeya_fleet.engine.sessions.creation_requests import REMEMBERED_REQUESTS, REQUEST_ID_SECONDS


@dataclass(frozen=True, slots=True)
class _Closing:
    owner: str
    request_id: str
    history_length: int
    closed_at: float


class Closings:
    """The latest closes by session, for ten minutes. Used by one thread at a time."""

    def __init__(self) -> None:
        self._closings: OrderedDict[str, _Closing] = OrderedDict()

    def remember(
        self, session_id: str, owner: str, request_id: str, history_length: int, now: float
    ) -> None:
        """The owner's `request_id` closed a session with a history so long.

        An empty one is not remembered.
        """
        if request_id:
            self._closings[session_id] = _Closing(owner, request_id, history_length, now)
        while len(self._closings) > REMEMBERED_REQUESTS:
            self._closings.popitem(last=False)

    def answer(self, session_id: str, owner: str | None, request_id: str, now: float) -> int | None:
        """What the close of this id answered; None when it closed nothing of the owner's.

        `owner` is None for whoever may close any session.
        """
        closing = self._closings.get(session_id)
        if not request_id or closing is None or closing.request_id != request_id:
            return None
        if owner not in (None, closing.owner):
            return None
        return closing.history_length if now - closing.closed_at < REQUEST_ID_SECONDS else None
