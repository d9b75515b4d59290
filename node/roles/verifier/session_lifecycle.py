"""How sessions of this node come to be, are kept alive, recover and end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kakeya_fleet.engine.errors import (
    BadParameters,
    InvariantViolated,
    RestorerLost,
    SessionNotFound,
)
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.history_checks import check_length
from kakeya_fleet.engine.sessions.session_record import Activity, SessionRecord
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.planning.codec_ledger import CodecLedger
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from kakeya_fleet.node.roles.verifier.draft_connections import PairingContext
from kakeya_fleet.node.roles.verifier.local_evicted_stores import LocalEvictedStores
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.pairing import Pairing
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec, check_for_model
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_announcer import SessionAnnouncer
from kakeya_fleet.node.roles.verifier.session_factory import KvDecision, MadeSession, SessionFactory
from kakeya_fleet.node.roles.verifier.verifier_routing import VerifierRouting
from kakeya_fleet.node.roles.worker import WorkerClosed
from kakeya_fleet.node.rpc.refusals import Draining, ForkBeyondHistory

SESSION_ID_BYTES = 16


def new_session_id() -> str:
    """A session id that nobody guesses."""
    return secrets.token_hex(SESSION_ID_BYTES)


class SessionLifecycle:
    """Opens, forks, recovers and ends the sessions of `registry`.

    Belongs to the event loop's thread.
    """

    def __init__(
        self,
        registry: SessionRegistry[OpenSession],
        verifiers: VerifierRouting,
        context: PairingContext,
        restorers: Restorers,
        announcer: SessionAnnouncer,
        codecs: CodecLedger,
        clock: Callable[[], float],
        *,
        rest_seconds: float,
    ) -> None:
        """`announcer` hears of the registry's ends; `codecs` say by what sessions pack.

        `clock` gives monotonic seconds.

        A session that is idle for `rest_seconds` gives up its draft stream.
        """
        self._rest_seconds = rest_seconds
        self.registry = registry
        self.verifiers = verifiers
        self.announcer = announcer
        self._context = context
        self._restorers = restorers
        self._clock = clock
        self._factory = SessionFactory(
            registry, context.planner, restorers, context.fleet.self_id, codecs
        )
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

    def refuse_opening_when_draining(self, model_id: str) -> None:
        """Raises `ModelServedElsewhere`, or `Draining` where nobody else serves the model."""
        if self._draining:
            self.verifiers.refer(model_id)
        self.refuse_when_draining()

    def is_leaving(self, served: ServedVerifier) -> bool:
        """Whether sessions of a verifier are to go elsewhere: their node leaves, or it does."""
        return self._draining or served.withdrawn.is_set()

    def refuse_when_leaving(self, served: ServedVerifier) -> None:
        """Raises `Draining`."""
        self.refuse_when_draining()
        served.refuse_when_withdrawn()

    def check_first_tokens(self, model_id: str, count: int) -> None:
        """Refuses more first tokens than the model has positions, before one is looked at.

        There may be millions, which take the event loop's time. Raises `ContextExceeded`, and
        as `open` of a model that is not served here.
        """
        if count and model_id:
            self.refuse_opening_when_draining(model_id)
            info = self.verifiers.served(model_id).verifier.info
            check_length(count, history_length=0, history_limit=info.context_length)

    async def open(self, asked: SessionSpec, caller: Caller = NOBODY) -> OpenSession:
        """A new session of `caller`, or the one that the same request id opened.

        Raises `Draining`, `ModelServedElsewhere`, `ModelLoading`, `ModelNotFound`,
        `NoPlacement`, `BadParameters` (also for a request id that asked for
        something else), `OutOfKvMemory`, `TooManySessions`; of one that was
        asked to be `restored` also `KvStrategyUnsupported`, `NoArchive`, `ArchiveFull`,
        `RestorerMismatch` and `TrainedForAnother`.
        """
        self.refuse_opening_when_draining(asked.model_id)
        served = self.verifiers.served(asked.model_id)
        check_for_model(asked, served.verifier.info)
        decision = self._factory.decide(asked, served, caller)
        self._factory.check_room(decision, served, caller)
        pairing = await Pairing.of_met(decision.spec, served.verifier.info, self._context)
        made = await self._made(asked, decision, served, caller)
        session = made.record.opened
        if session is None:
            return self._opened(made, asked, pairing)
        if session.asked != asked:
            raise BadParameters(
                f"request id {asked.request_id!r} opened another kind of session; take a new id",
                field="request_id",
            )
        return session

    async def fork(
        self,
        origin: OpenSession,
        history_length: int | None,
        caller: Caller = NOBODY,
        request_id: str = "",
    ) -> OpenSession:
        """A new session of `caller` with the first tokens of another, whose turn it has.

        The same `request_id` gives the same session. Raises `BadParameters`, `Draining`,
        `ForkBeyondHistory`, `SessionNotFound`, `OutOfKvMemory`, `TooManySessions`,
        `RestorerLost`, `InvariantViolated`, which ends the session that was to be forked.
        """
        self.refuse_when_leaving(origin.served)
        served, session_id = origin.served, origin.session_id
        length = len(self.registry.get(session_id).session.history)
        if history_length is not None and history_length > length:
            raise ForkBeyondHistory(
                f"the history has {length} tokens, a fork cannot keep {history_length}",
                history_length=str(length),
            )
        # A proposer that fails just now costs the origin speed alone, and the fork too.
        pairing = Pairing(
            origin.spec, served.verifier.info, self._context, inherited=origin.pairing.plan
        )
        fork = partial(
            self.registry.fork, session_id, history_length, owner=caller, request_id=request_id
        )
        # Not evicted either while it waits for the verifier's thread.
        with self._violations_told(session_id), self.registry.hold(session_id, Activity.IDLE):
            try:
                record = await self._factory.created(served, fork)
            except RestorerLost:
                await self.recover(origin)
                record = await self._factory.created(served, fork)
            while record.session.end_reason:
                # It was forked for an earlier call with this request id, whose client has left.
                record = await self._factory.created(served, fork)
        if record.opened is not None:
            return record.opened
        restorer = origin.restorer
        if restorer is not None:
            restorer = self._restorers.forked(restorer, record.session.evicted)
        decision = KvDecision(origin.spec, origin.kv_reason)
        return self._opened(MadeSession(record, served, restorer, decision), origin.asked, pairing)

    async def recover(self, session: OpenSession) -> None:
        """Gives a session that lost what it had evicted a new archive and an empty cache.

        The caller has its turn; all of the history is pending then. Raises
        `RestorerLost` when none can be had in time, `SessionNotFound`.
        """
        restorer = session.restorer
        if restorer is None:
            raise RestorerLost("the session has no restorer that could be made anew")
        history_length = len(self.registry.get(session.session_id).session.history)
        restorer.lost = True
        self.announcer.events.archive_lost(session)
        session.check_rebuilds(history_length)
        here = LocalEvictedStores.of(session.served)
        evicted = await self._restorers.rebuild(restorer, history_length, here)
        session.rebuild_count += 1
        taken = False

        def renew() -> None:
            nonlocal taken
            taken = True
            self.registry.renew(session.session_id, evicted)

        try:
            await session.served.worker.run(renew)
            self.announcer.events.archive_rebuilt(session)
        finally:
            # A caller that left took the step back: nobody else would give it up.
            if not taken and evicted is not None:
                evicted.release()

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """Keys and values were computed: told, and remembered for who could rest."""
        session.record.budget.pace.record(token_count, seconds)
        self.announcer.observer.prefilled(session, token_count, seconds)
        if session.record.session.has_shrunk and not session.told_shrunk:
            session.told_shrunk = True
            self.announcer.shrunk(session)

    @contextmanager
    def working(
        self, session: OpenSession, activity: Activity
    ) -> Iterator[SessionRecord[OpenSession]]:
        """Around what is done in the session's turn: keeps it from being evicted, and shows it.

        Tells of a broken promise. Raises `SessionNotFound` or `GroupLost` when it has ended.
        """
        try:
            with self.holding(session.session_id, activity) as own:
                yield own
        finally:
            self.announcer.observer.idle(session)

    @contextmanager
    def holding(self, session_id: str, activity: Activity) -> Iterator[SessionRecord[OpenSession]]:
        """As `working`, of a session that nobody is told of."""
        with self._violations_told(session_id), self.registry.hold(session_id, activity) as own:
            yield own

    async def created(
        self, served: ServedVerifier, create: Callable[[], SessionRecord[OpenSession]]
    ) -> SessionRecord[OpenSession]:
        """A record that `create` makes in the verifier's thread; ended if the caller left."""
        return await self._factory.created(served, create)

    def sweep(self) -> None:
        """Evicts what is idle beyond its time to live, and lets idle draft streams rest."""
        now = self._clock()
        self.registry.sweep(now)
        sessions, _ = self.registry.page()
        for session in sessions:
            if session.record.idle_seconds(now) >= self._rest_seconds:
                session.pairing.rest()

    async def close(self) -> None:
        """Ends every session and its draft source."""
        self.registry.close_all(EndReason.DRAINED)
        await self.announcer.all_told()

    @contextmanager
    def _violations_told(self, session_id: str) -> Iterator[None]:
        try:
            yield
        except InvariantViolated as error:
            self.announcer.violated(session_id, error)
            raise

    async def _made(
        self, asked: SessionSpec, decision: KvDecision, served: ServedVerifier, caller: Caller
    ) -> MadeSession:
        try:
            made = await self._factory.make(asked, decision, served, caller)
            while made.record.session.end_reason:
                # It was opened for an earlier call with this request id, whose client
                # has left: the session was taken back while this call waited for it.
                made = await self._factory.make(asked, decision, served, caller)
        except (SessionNotFound, WorkerClosed):
            served.refuse_when_withdrawn()
            raise
        return made

    def _opened(self, made: MadeSession, asked: SessionSpec, pairing: Pairing) -> OpenSession:
        opened = OpenSession(
            made.record,
            made.decision.spec,
            asked,
            made.served,
            pairing,
            made.restorer,
            made.decision.reason,
        )
        self.registry.open(made.record, opened)
        pairing.attach(made.record.session, made.served.worker.run)
        if not opened.begins_at_rest:
            pairing.prepare()
        self.announcer.observer.opened(opened)
        return opened
