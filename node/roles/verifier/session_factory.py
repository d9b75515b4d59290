"""Makes a session's record: how its K/V are kept, its cache, and what restores the evicted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.errors import GroupLost, KvStrategyUnsupported, SessionNotFound
from kakeya_fleet.engine.sessions.session_record import SessionOptions, SessionRecord
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.planning.codec_ledger import CodecLedger, model_key
from kakeya_fleet.node.planning.codec_store import ModelKey
from kakeya_fleet.node.planning.planner import Planner
from kakeya_fleet.node.roles.archive.session_restorers import Restorers, SessionRestorer
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.worker import ModelWorker
from kakeya_fleet.node.rpc.refusals import ArchiveFull, NoArchive, RestorerMismatch


@dataclass(frozen=True, slots=True)
class KvDecision:
    """A session's spec with its K/V strategy, and why that one; empty when it was asked for."""

    spec: SessionSpec
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MadeSession:
    """A record of the registry, what restores its evicted positions, and how that was decided."""

    record: SessionRecord[OpenSession]
    served: ServedVerifier
    restorer: SessionRestorer | None
    decision: KvDecision


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Makes sessions in `registry`. Belongs to the event loop's thread.

    `self_id` is this node's; `codecs` say by what sessions pack.
    """

    registry: SessionRegistry[OpenSession]
    planner: Planner
    restorers: Restorers
    self_id: str
    codecs: CodecLedger

    def decide(self, asked: SessionSpec, served: ServedVerifier, caller: Caller) -> KvDecision:
        """How the session's keys and values are kept; as before for a request id that is known."""
        packs = asked.quality is not None or asked.quality_when_short is not None
        if not asked.leaves_strategy and not packs:
            return KvDecision(asked)
        earlier = self.registry.created(served.budget, asked.request_id, owner=caller)
        session = earlier.opened if earlier is not None else None
        if session is not None:
            return KvDecision(session.spec, session.kv_reason)
        if packs:
            return KvDecision(self._packed(asked, model_key(served.verifier.info)))
        request = asked.plan_request(self.self_id, served.verifier.info)
        choice = self.planner.kv_choice_here(request, served.offer)
        return KvDecision(asked.decided(choice.strategy), choice.reason)

    def check_room(self, decision: KvDecision, served: ServedVerifier, caller: Caller) -> None:
        """Refuses now what has no room, before it is planned: a crowd is turned away quickly.

        Of a session that is to be `restored` it is asked once its archive's shape is known.
        Raises `OutOfKvMemory`, `TooManySessions`.
        """
        spec = decision.spec
        if spec.restorer is None and not self.registry.created(
            served.budget, spec.request_id, owner=caller
        ):
            info = served.verifier.info
            smaller = spec.smaller_cache_spec(info)
            first = spec.first_cache_spec(spec.cache_spec(info))
            self.registry.check_room(served.budget, first, caller, smaller=smaller)

    async def make(
        self, asked: SessionSpec, decision: KvDecision, served: ServedVerifier, caller: Caller
    ) -> MadeSession:
        """The record of a new session of `caller`, or the one that the same request id opened.

        One that left its strategy open keeps sink and window alone where no archive
        takes it. Raises what `SessionLifecycle.open` says of it.
        """
        try:
            return await self._made(decision, served, caller)
        except (NoArchive, ArchiveFull, RestorerMismatch, KvStrategyUnsupported) as error:
            if not asked.leaves_strategy:
                raise
            reason = (
                "Sink and window alone are kept: an archive was there, and none took the session:"
                f" {error}."
            )
            return await self._made(KvDecision(asked, reason), served, caller)

    async def created(
        self,
        served: ServedVerifier,
        create: Callable[[], SessionRecord[OpenSession]],
        evicted: EvictedStore | None = None,
    ) -> SessionRecord[OpenSession]:
        """A record made in the verifier's thread; ended again when the caller left meanwhile.

        `create` takes over `evicted`; it is released when `create` is never called.
        """
        creating = asyncio.ensure_future(_run(served.worker, create, evicted))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(partial(_abandon, self.registry))
            raise

    def _packed(self, asked: SessionSpec, model: ModelKey) -> SessionSpec:
        """With the codecs that a model's qualities have now."""
        if asked.quality is not None:
            asked = asked.packed_by(self.codecs.packing(model, asked.quality, asked.pinned))
        if asked.quality_when_short is not None:
            packing = self.codecs.packing(model, asked.quality_when_short)
            asked = replace(asked, packing_when_short=packing)
        return asked

    async def _made(
        self, decision: KvDecision, served: ServedVerifier, caller: Caller
    ) -> MadeSession:
        spec, info = decision.spec, served.verifier.info
        restorer, evicted = None, None
        cache_spec = spec.cache_spec(info)
        if spec.restorer is not None:
            of, encoder = await self.restorers.resolve(spec.restorer, info)
            cache_spec = spec.cache_spec(info, of)
            if self.registry.created(served.budget, spec.request_id, owner=caller) is None:
                # Before another node keeps memory for it.
                self.registry.check_room(served.budget, cache_spec, caller)
            shape = served.verifier.evicted_shape(cache_spec)
            restorer = SessionRestorer(spec.restorer, of, shape, info.weights_digest, encoder)
            evicted = await self.restorers.open(restorer)
        create = partial(
            self.registry.create,
            served.budget,
            cache_spec,
            SessionOptions(spec.client_label, spec.stop_token_ids),
            spec.request_id,
            evicted=evicted,
            smaller=spec.smaller_cache_spec(info),
            first=spec.first_cache_spec(cache_spec),
            owner=caller,
        )
        record = await self.created(served, create, evicted)
        return MadeSession(record, served, restorer, decision)


async def _run(
    worker: ModelWorker,
    create: Callable[[], SessionRecord[OpenSession]],
    evicted: EvictedStore | None,
) -> SessionRecord[OpenSession]:
    """What `create` makes in the worker's thread."""
    taken = False

    def take() -> SessionRecord[OpenSession]:
        nonlocal taken
        taken = True
        return create()

    try:
        return await worker.run(take)
    finally:
        # A worker that closes refuses what waits: nobody else would give it up.
        if not taken and evicted is not None:
            evicted.release()


def _abandon(
    registry: SessionRegistry[OpenSession], creating: asyncio.Future[SessionRecord[OpenSession]]
) -> None:
    """Ends a session whose client left before it heard of it."""
    if creating.cancelled() or creating.exception() is not None:
        return
    record = creating.result()
    if record.opened is None:
        with suppress(SessionNotFound, GroupLost):
            registry.close(record.session_id)
