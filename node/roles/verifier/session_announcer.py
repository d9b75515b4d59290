"""Tells of what befalls sessions: observers, events, metrics and the log hear of it."""

from __future__ import annotations

import asyncio

import structlog

from kakeya_fleet.engine.errors import InvariantViolated
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.session_record import SessionRecord
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Outcome, SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents

_OUTCOMES = {
    EndReason.CLOSED: Outcome.CLOSED,
    EndReason.IDLE: Outcome.EVICTED,
    EndReason.MEMORY: Outcome.EVICTED,
    EndReason.INVARIANT: Outcome.INVARIANT_VIOLATED,
    EndReason.GROUP: Outcome.GROUP_LOST,
    EndReason.DRAINED: Outcome.DRAINED,
    EndReason.REMOVED: Outcome.DRAINED,
}
_EVICTIONS = {EndReason.IDLE: "ttl", EndReason.MEMORY: "memory"}

_log = structlog.get_logger(__name__)


class SessionAnnouncer:
    """Belongs to the event loop on which it was made.

    `on_end` and `on_rest` may come from any thread.
    """

    def __init__(
        self, observer: SessionObserver, events: SessionEvents, metrics: NodeMetrics
    ) -> None:
        self.observer = observer
        self.events = events
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._closing: set[asyncio.Task[None]] = set()

    def on_end(self, record: SessionRecord[OpenSession], reason: EndReason) -> None:
        """A session has ended: told on the event loop, where its pairing is closed too."""
        self._loop.call_soon_threadsafe(self._ended, record, reason)

    def on_rest(self, record: SessionRecord[OpenSession], nbytes: int) -> None:
        """A session gave so many bytes to another."""
        idle_seconds = record.idle_seconds(self._loop.time())
        self._loop.call_soon_threadsafe(self._rested, record, nbytes, idle_seconds)

    def shrunk(self, session: OpenSession) -> None:
        """A session is packed from now on, since memory is short."""
        self._metrics.sessions_shrunk.inc()
        self.events.shrunk(session)

    def violated(self, session_id: str, error: InvariantViolated) -> None:
        """A broken promise, which has ended the session."""
        kind = error.metadata.get("invariant", "unknown")
        self._metrics.invariant_violations.labels(kind=kind).inc()
        self.events.violated(session_id, kind, str(error))
        _log.error("invariant_violated", session_id=session_id, invariant=kind, detail=str(error))

    async def all_told(self) -> None:
        """Waits until the ends of now are told, and their pairings closed."""
        # Ends are told through the loop: let those callbacks run.
        await asyncio.sleep(0)
        if self._closing:
            await asyncio.wait(self._closing)

    def _rested(self, record: SessionRecord[OpenSession], nbytes: int, idle_seconds: float) -> None:
        session = record.opened
        if session is None or session.has_ended:
            return
        self.events.rested(session, nbytes, idle_seconds)
        self.observer.rested(session)

    def _ended(self, record: SessionRecord[OpenSession], reason: EndReason) -> None:
        if reason in _EVICTIONS:
            self._metrics.evictions.labels(reason=_EVICTIONS[reason]).inc()
            _log.info("session_evicted", session_id=record.session_id, reason=reason.value)
        # Each has the other: parted they are free without the collector of cycles.
        session, record.opened = record.opened, None
        if session is None:
            # Its client left before it heard of it.
            return
        self.events.evicted(record.session_id, reason)
        self.observer.ended(session, _OUTCOMES[reason])
        task = asyncio.create_task(session.pairing.close(), name="pairing-close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
