"""Opens sessions, with the first tokens of their history where they come along."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kakeya_fleet.engine.errors import GroupLost, SessionNotFound
from kakeya_fleet.node.roles.verifier.appending import Appends
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec
from kakeya_fleet.node.roles.verifier.session_desk import SessionDesk


class SessionOpening:
    """Opens a session whole or not at all. Belongs to the event loop's thread."""

    def __init__(self, desk: SessionDesk, appends: Appends) -> None:
        self._desk = desk
        self._appends = appends

    async def open(self, spec: SessionSpec, token_ids: Sequence[int]) -> OpenSession:
        """A session whose history is `token_ids`, computed; those that `spec` counts.

        The same request id gives the same session, and its tokens are appended once.
        When they cannot be, or the caller leaves before they are computed, no session
        stays open. Raises what `SessionDesk.open` and `Appends.append` raise.
        """
        while True:
            session = await self._desk.open(spec)
            # One that ended was given up by another call with this request id.
            if not token_ids or await self._is_filled(session, token_ids):
                return session

    async def _is_filled(self, session: OpenSession, token_ids: Sequence[int]) -> bool:
        """Appends unless that is done; False when the session has ended before its turn came."""
        async with session.turn:
            if session.opening_seconds is not None:
                return True
            try:
                self._desk.get(session.session_id)
            except SessionNotFound:
                return False
            try:
                appended = await self._appends.append(session, token_ids, expected_length=0)
            except BaseException:
                with suppress(SessionNotFound, GroupLost):
                    self._desk.close_session(session.session_id)
                raise
            session.opening_seconds = appended.prefill_seconds
            return True
