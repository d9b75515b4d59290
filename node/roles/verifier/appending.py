"""Tokens into sessions: into those that are open, and with those that are opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from kakeya_fleet.engine.errors import GroupLost, SessionNotFound
from kakeya_fleet.engine.sessions.session_driver import Appended, SessionDriver
from kakeya_fleet.engine.sessions.session_record import Activity
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle


class Appending:
    """Appends to the sessions of a node. Belongs to the event loop's thread."""

    def __init__(self, lifecycle: SessionLifecycle, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._lifecycle = lifecycle
        self._clock = clock

    async def append(
        self,
        session: OpenSession,
        token_ids: Sequence[int],
        expected_length: int | None = None,
        room: int = 0,
    ) -> Appended:
        """Appends and computes, see `SessionDriver.append`; the caller has the session's turn.

        A caller that leaves stops the computation within one forward. Raises what that
        raises, and `Draining`.
        """
        lifecycle, worker = self._lifecycle, session.served.worker
        with lifecycle.working(session, Activity.APPENDING) as record:
            if not session.begins_at_rest:
                await session.pairing.conditioned()
            driver = SessionDriver(
                worker.run_turn,
                self._clock,
                partial(lifecycle.prefilled, session),
                partial(lifecycle.recover, session),
            )
            return await driver.append(
                record.session,
                token_ids,
                expected_length,
                room=room,
                run_step=worker.run,
                # Otherwise the server's stop would end it, without a reason.
                should_stop=partial(lifecycle.refuse_when_leaving, session.served),
            )

    async def open(
        self, spec: SessionSpec, token_ids: Sequence[int], caller: Caller = NOBODY
    ) -> OpenSession:
        """A session of `caller` whose history is `token_ids`, computed; those that `spec` counts.

        The same request id gives the same session, and its tokens are appended once.
        When they cannot be, or the caller leaves before they are computed, no session
        stays open. Raises what `SessionLifecycle.open` and `append` raise.
        """
        while True:
            session = await self._lifecycle.open(spec, caller)
            # One that ended was given up by another call with this request id.
            if not token_ids or await self._is_filled(session, token_ids):
                return session

    async def _is_filled(self, session: OpenSession, token_ids: Sequence[int]) -> bool:
        """Appends unless that is done; False when the session has ended before its turn came."""
        registry = self._lifecycle.registry
        async with session.turn:
            if session.opening_seconds is not None:
                return True
            try:
                registry.get(session.session_id)
            except SessionNotFound:
                return False
            try:
                room = session.asked.room_tokens
                appended = await self.append(session, token_ids, expected_length=0, room=room)
            except BaseException:
                with suppress(SessionNotFound, GroupLost):
                    registry.close(session.session_id)
                raise
            session.opening_seconds = appended.prefill_seconds
            return True
