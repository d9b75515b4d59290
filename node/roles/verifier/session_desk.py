"""Sessions of this node: opened, found, forked, listed and closed."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kakeya_fleet.engine.errors import (
    BadParameters,
    GroupLost,
    InvariantViolated,
    RestorerLost,
    SessionNotFound,
)
from kakeya_fleet.engine.sessions.ended import ended_error
from kakeya_fleet.engine.sessions.session_store import Activity, EndReason, SessionRecord
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from kakeya_fleet.node.roles.verifier.kept_here import KeptHere
from kakeya_fleet.node.roles.verifier.observer import Outcome
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.pairing import Pairing
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec, check_for_model
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_making import KvDecision, MadeSession, SessionMaking
from kakeya_fleet.node.roles.verifier.session_words import SessionWords
from kakeya_fleet.node.roles.verifier.surroundings import Surroundings
from kakeya_fleet.node.rpc.refusals import (
    Draining,
    ForkBeyondHistory,
    ModelLoading,
    ModelServedElsewhere,
)

if TYPE_CHECKING:
    from kakeya_fleet.node.roles.verifier.observer import SessionObserver

SESSION_ID_BYTES = 16
# Ids of ended sessions that are remembered, to say how they ended.
REMEMBERED_ENDS = 4096

# Idle seconds after which a session gives up its draft stream: a proposer serves
# a limited number, and opening one again costs one prefix.
REST_SECONDS = 60.0
# Loads take seconds to minutes: so often a client asks again.
LOADING_RETRY_SECONDS = 1.0

_OUTCOMES = {
    EndReason.CLOSED: Outcome.CLOSED,
    EndReason.IDLE: Outcome.EVICTED,
    EndReason.MEMORY: Outcome.EVICTED,
    EndReason.INVARIANT: Outcome.INVARIANT_VIOLATED,
    EndReason.GROUP: Outcome.GROUP_LOST,
    EndReason.DRAINED: Outcome.DRAINED,
}
_EVICTIONS = {EndReason.IDLE: "ttl", EndReason.MEMORY: "memory"}

_log = structlog.get_logger(__name__)


def new_session_id() -> str:
    """A session id that nobody guesses."""
    return secrets.token_hex(SESSION_ID_BYTES)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of the sessions, and who knows whether a model is still being loaded here."""

    observer: SessionObserver
    words: SessionWords
    is_loading: Callable[[str], bool]


class SessionDesk:
    """All open sessions. Belongs to the event loop's thread."""

    def __init__(
        self,
        verifiers: Mapping[str, ServedVerifier],
        around: Surroundings,
        restorers: Restorers,
        metrics: NodeMetrics,
        clock: Callable[[], float],
        listeners: Listeners,
    ) -> None:
        self._observer = listeners.observer
        self._words = listeners.words
        self._is_loading = listeners.is_loading
        self._verifiers = verifiers
        self._around = around
        self._restorers = restorers
        self._metrics = metrics
        self._clock = clock
        self._sessions: dict[str, OpenSession] = {}
        self._making = SessionMaking(
            around.planner, restorers, self._sessions, around.fleet.self_id
        )
        self._next_ordinal = 1
        self._ends: OrderedDict[str, EndReason] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether new sessions and generations are refused."""
        return self._draining

    def drain(self) -> None:
        """Refuses new sessions and generations from now on."""
        self._draining = True

    def refuse_when_draining(self) -> None:
        """Raises `Draining`."""
        if self._draining:
            raise Draining("this node is leaving the fleet; resume the session elsewhere")

    async def open(self, asked: SessionSpec) -> OpenSession:
        """A new session, or the one that the same request id opened.

        Raises `Draining`, `ModelServedElsewhere`, `ModelLoading`, `ModelNotFound`,
        `NoPlacement`, `BadParameters` (also for a request id that asked for
        something else), `OutOfKvMemory`; of one that was asked to be `restored` also
        `KvStrategyUnsupported`, `NoArchive`, `ArchiveFull`, `RestorerMismatch`
        and `TrainedForAnother`.
        """
        self.refuse_when_draining()
        served = self.served(asked.model_id)
        check_for_model(asked, served.verifier.info)
        decision = self._making.decide(asked, served)
        pairing = Pairing(decision.spec, served.verifier.info, self._around)
        made = await self._making.make(asked, decision, served)
        while made.record.session.end_reason:
            # It was opened for an earlier call with this request id, whose client
            # has left: the session was taken back while this call waited for it.
            made = await self._making.make(asked, decision, served)
        session = self._sessions.get(made.record.session_id)
        if session is None:
            return self._entered(made, asked, served, pairing)
        if session.asked != asked:
            raise BadParameters(
                f"request id {asked.request_id!r} opened another kind of session; take a new id",
                field="request_id",
            )
        return session

    async def fork(self, origin: OpenSession, history_length: int | None) -> OpenSession:
        """A new session with the first tokens of another; the caller has its turn.

        Raises `Draining`, `ForkBeyondHistory`, `SessionNotFound`, `OutOfKvMemory`,
        `RestorerLost`, `InvariantViolated`, which ends the session that was to be
        forked.
        """
        self.refuse_when_draining()
        served = origin.served
        length = len(served.store.get(origin.session_id).session.history)
        if history_length is not None and history_length > length:
            raise ForkBeyondHistory(
                f"the history has {length} tokens, a fork cannot keep {history_length}",
                history_length=str(length),
            )
        # A proposer that fails just now costs the origin speed alone, and the fork too.
        pairing = Pairing(
            origin.spec, served.verifier.info, self._around, inherited=origin.pairing.plan
        )
        fork = partial(served.store.fork, origin.session_id, history_length)
        try:
            # Not evicted either while it waits for the verifier's thread.
            with served.store.hold(origin.session_id, Activity.IDLE):
                try:
                    record = await self._making.created(served, fork)
                except RestorerLost:
                    await self.recover(origin)
                    record = await self._making.created(served, fork)
        except InvariantViolated as error:
            self.violated(origin.session_id, error)
            raise
        # Evicted already, it would stay on the desk for ever.
        record = served.store.get(record.session_id)
        restorer = origin.restorer
        if restorer is not None:
            restorer = self._restorers.forked(restorer, record.session.evicted)
        decision = KvDecision(origin.spec, origin.kv_reason)
        made = MadeSession(record, restorer, decision)
        return self._entered(made, origin.asked, served, pairing)

    async def recover(self, session: OpenSession) -> None:
        """Gives a session that lost what it had evicted a new archive and an empty cache.

        The caller has its turn; all of the history is pending then. Raises
        `RestorerLost` when none can be had in time, `SessionNotFound`.
        """
        restorer = session.restorer
        if restorer is None:
            raise RestorerLost("the session has no restorer that could be made anew")
        store = session.served.store
        history_length = len(store.get(session.session_id).session.history)
        restorer.lost = True
        self._words.archive_lost(session)
        session.check_rebuilds(history_length)
        here = KeptHere.of(session.served)
        evicted = await self._restorers.rebuild(restorer, history_length, here)
        session.rebuild_count += 1
        taken = False

        def renew() -> None:
            nonlocal taken
            taken = True
            store.renew(session.session_id, evicted)

        try:
            await session.served.worker.run(renew)
            self._words.archive_rebuilt(session)
        finally:
            # A caller that left took the step back: nobody else would give it up.
            if not taken and evicted is not None:
                evicted.release()

    @contextmanager
    def working(self, session: OpenSession, activity: Activity) -> Iterator[SessionRecord]:
        """Around what is done in the session's turn: keeps it from being evicted, and shows it.

        Raises `SessionNotFound` or `GroupLost` when it has ended.
        """
        try:
            with session.served.store.hold(session.session_id, activity) as record:
                yield record
        finally:
            self._observer.idle(session.session_id)

    @contextmanager
    def prefilling(self, session: OpenSession) -> Iterator[None]:
        """Around a step that computes keys and values of pending tokens: tells how many."""
        record = session.served.store.get(session.session_id)
        before, began = record.session.pending, self._clock()
        try:
            yield
        finally:
            computed = before - record.session.pending
            if computed > 0:
                seconds = self._clock() - began
                self._observer.prefilled(session.session_id, computed, seconds)

    def get(self, session_id: str) -> tuple[OpenSession, SessionRecord]:
        """The live session. Raises `SessionNotFound` or `GroupLost`, saying how it ended."""
        session = self._sessions.get(session_id)
        if session is not None:
            return session, session.served.store.get(session_id)
        reason = self._ends.get(session_id)
        subject = f"session {session_id[:64]!r}"
        if reason is not None:
            raise ended_error(subject, reason.value, session_id=session_id[:64])
        raise SessionNotFound(
            f"{subject} is not known to this node; open a new one and append the history",
            session_id=session_id[:64],
        )

    def page(self, after: int, size: int) -> tuple[list[OpenSession], int | None]:
        """Sessions with an ordinal above `after`, oldest first, at most `size`.

        The second value is the `after` of the next page, None at the end.
        """
        later = [session for session in self._sessions.values() if session.ordinal > after]
        page = later[:size]
        return page, page[-1].ordinal if len(later) > size else None

    def close_session(self, session_id: str) -> int:
        """Ends a session, frees its memory, returns its history's length.

        Raises `SessionNotFound`. A step that runs ends first.
        """
        session, _record = self.get(session_id)
        return session.served.store.close(session_id)

    def ended(self, session_id: str, reason: EndReason) -> None:
        """A store's session ended; on the event loop's thread."""
        outcome = _OUTCOMES[reason]
        if reason in _EVICTIONS:
            self._metrics.evictions.labels(reason=_EVICTIONS[reason]).inc()
            _log.info("session_evicted", session_id=session_id, reason=reason.value)
        self._ends[session_id] = reason
        if len(self._ends) > REMEMBERED_ENDS:
            self._ends.popitem(last=False)
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._words.evicted(session_id, reason)
        self._observer.ended(session_id, outcome)
        task = asyncio.create_task(session.pairing.close(), name="pairing-close")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def violated(self, session_id: str, error: InvariantViolated) -> None:
        """Counts a broken promise; the store has ended the session."""
        kind = error.metadata.get("invariant", "unknown")
        self._metrics.invariant_violations.labels(kind=kind).inc()
        self._words.violated(session_id, kind, str(error))
        _log.error("invariant_violated", session_id=session_id, invariant=kind, detail=str(error))

    def sweep(self) -> None:
        """Evicts what is idle beyond its time to live, and lets idle draft streams rest."""
        now = self._clock()
        for served in self._verifiers.values():
            served.store.sweep(now)
        for session in self._sessions.values():
            # The loop may hear of its end only after this.
            with suppress(SessionNotFound, GroupLost):
                record = session.served.store.get(session.session_id)
                if record.idle_seconds(now) >= REST_SECONDS:
                    session.pairing.rest()

    async def close(self) -> None:
        """Closes every session and its draft source."""
        for served in self._verifiers.values():
            served.store.close_all(EndReason.DRAINED)
        # The stores report ends through the loop: let those callbacks run.
        await asyncio.sleep(0)
        if self._ending:
            await asyncio.wait(self._ending)

    def _entered(
        self, made: MadeSession, asked: SessionSpec, served: ServedVerifier, pairing: Pairing
    ) -> OpenSession:
        record = made.record
        pairing.attach(record.session)
        session = OpenSession(
            record.session_id,
            self._next_ordinal,
            made.decision.spec,
            asked,
            served,
            pairing,
            made.restorer,
            made.decision.reason,
        )
        self._next_ordinal += 1
        self._sessions[record.session_id] = session
        self._observer.opened(session)
        return session

    def served(self, model_id: str) -> ServedVerifier:
        """The verifier of that name.

        Raises `ModelServedElsewhere`, `ModelLoading`, `ModelNotFound`.
        """
        served = self._verifiers.get(model_id)
        if served is not None:
            return served
        known: set[str] = set(self._verifiers)
        for view in self._around.fleet.nodes():
            if view.liveness is not Liveness.ALIVE:
                continue
            models = {offer.model_id for offer in view.card.offers(Role.VERIFIER)}
            known |= models
            address = self._around.fleet.address(view.card.node_id)
            if model_id in models and address and view.card.node_id != self._around.fleet.self_id:
                raise ModelServedElsewhere(
                    f"{model_id!r} is served by {view.card.name} at {address}; ask there",
                    address=address,
                    node_id=view.card.node_id,
                )
        if self._is_loading(model_id):
            raise ModelLoading(
                f"{model_id!r} is still being loaded here; wait, and ask again",
                model_id=model_id[:64],
                retry_after_seconds=str(LOADING_RETRY_SECONDS),
            )
        names = ", ".join(sorted(known)) or "none"
        raise ModelNotFound(
            f"no live node serves {model_id[:64]!r} as a verifier; served: {names}",
            model_id=model_id[:64],
            served=names,
        )
