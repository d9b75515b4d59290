"""Appends to sessions, and computes the keys and values that they then lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kakeya_fleet.engine.errors import InvariantViolated, RestorerLost
from kakeya_fleet.engine.sessions.session_store import Activity, SessionRecord
from kakeya_fleet.engine.sessions.turns import PrefillTurn
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.session_desk import SessionDesk


@dataclass(frozen=True, slots=True)
class Appended:
    """The history's length in tokens, and what computing took, waits for turns included."""

    history_length: int
    prefill_seconds: float


class Appends:
    """The one way of tokens into a history. Belongs to the event loop's thread."""

    def __init__(self, desk: SessionDesk, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._desk = desk
        self._clock = clock

    async def append(
        self, session: OpenSession, token_ids: Sequence[int], expected_length: int | None = None
    ) -> Appended:
        """Appends, then computes keys and values one forward at a time.

        The caller has the session's turn. All tokens are in the history before the
        first forward. A caller that leaves stops the computation within one forward:
        the history keeps all the tokens, and the session's next operation computes
        the rest. Raises what `Session.append` raises, `SessionNotFound`, `Draining`,
        `RestorerLost`, `InvariantViolated`.
        """
        run = session.served.worker.run
        with self._desk.working(session, Activity.APPENDING) as record:
            try:
                await session.pairing.conditioned()
                length = await run(partial(record.session.append, token_ids, expected_length))
                began = self._clock()
                await self._compute(session, record)
            except InvariantViolated as error:
                self._desk.violated(session.session_id, error)
                raise
        return Appended(length, self._clock() - began)

    async def _compute(self, session: OpenSession, record: SessionRecord) -> None:
        while record.session.pending:
            # Otherwise the server's stop would end it, without a reason.
            self._desk.refuse_when_draining()
            try:
                with self._desk.prefilling(session):
                    await session.served.worker.run(PrefillTurn(record.session))
            except RestorerLost:
                await self._desk.recover(session)
