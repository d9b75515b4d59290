"""RuntimeService: token sessions over the wire."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import grpc.aio

from engine.errors import GroupLost, InvariantViolated, RestorerLost, SessionNotFound
from engine.session_store import Activity
from engine.turns import PrefillTurn
from fleet.plan import Plan
from kakeya.v1 import runtime_pb2 as wire
from kakeya.v1 import runtime_pb2_grpc
from node.membership.card_wire import offer_to_wire
from node.metrics import NodeMetrics
from node.planning.plan_wire import plan_to_wire
from node.sessions.generations import Finished, Generations
from node.sessions.open_session import OpenSession, planned
from node.sessions.report_wire import committed_to_wire, done_to_wire, session_to_wire
from node.sessions.runtime_wire import (
    generation_spec_from_wire,
    page_from_wire,
    session_spec_from_wire,
)
from node.sessions.session_desk import SessionDesk

if TYPE_CHECKING:
    from typing import TypeAlias

    from google.protobuf.message import Message

    Context: TypeAlias = grpc.aio.ServicerContext[Message, Message]


class RuntimeServicer(runtime_pb2_grpc.RuntimeServiceServicer):
    """Answers with what the desk and the generations do.

    Each operation on a session waits for its turn; info, list and close do not.
    """

    def __init__(
        self,
        desk: SessionDesk,
        generations: Generations,
        metrics: NodeMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._desk = desk
        self._generations = generations
        self._metrics = metrics
        self._clock = clock

    async def CreateSession(  # noqa: N802
        self, request: wire.CreateSessionRequest, _context: Context
    ) -> wire.CreateSessionResponse:
        """Opens a session with an empty history."""
        session = await self._desk.open(session_spec_from_wire(request))
        offer = session.served.offer
        return wire.CreateSessionResponse(
            session_id=session.session_id,
            model=offer_to_wire(offer),
            vocabulary_size=offer.vocabulary_size,
            plan=plan_to_wire(planned(session)),
        )

    async def AppendTokens(  # noqa: N802
        self, request: wire.AppendTokensRequest, _context: Context
    ) -> wire.AppendTokensResponse:
        """Appends, then computes keys and values one forward at a time.

        All tokens are in the history before the first forward. A caller that
        leaves stops the computation within one forward: the history keeps all
        the tokens, and the session's next operation computes the rest.
        """
        session, _record = self._desk.get(request.session_id)
        expected = (
            request.expected_history_length if request.HasField("expected_history_length") else None
        )
        token_ids = list(request.token_ids)
        async with session.turn:
            store, worker = session.served.store, session.served.worker
            with store.hold(session.session_id, Activity.APPENDING) as record:
                try:
                    await session.pairing.conditioned()
                    length = await worker.run(partial(record.session.append, token_ids, expected))
                    while record.session.pending:
                        # Otherwise the server's stop would end it, without a reason.
                        self._desk.refuse_when_draining()
                        before = record.session.pending
                        try:
                            await worker.run(PrefillTurn(record.session))
                        except RestorerLost:
                            await self._desk.recover(session)
                        self._metrics.tokens_prefilled.inc(max(0, before - record.session.pending))
                except InvariantViolated as error:
                    self._desk.violated(session.session_id, error)
                    raise
        return wire.AppendTokensResponse(history_length=length)

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def Generate(  # type: ignore[override]  # noqa: N802
        self, request: wire.GenerateRequest, context: Context
    ) -> None:
        """Streams tokens as they commit, then one done."""
        spec = generation_spec_from_wire(request, os.urandom)
        session, record = self._desk.get(request.session_id)
        spec.check_for_model(record.session.verifier.info)
        async with aclosing(self._generations.run(session, spec)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    done = done_to_wire(
                        event.done,
                        queue_seconds=event.queue_seconds,
                        proposer=event.proposer,
                        drop_reason=event.drop_reason,
                        restorer_rebuild_count=event.restorer_rebuild_count,
                        link_changes=event.link_changes,
                        started_at=event.started_at,
                    )
                    await context.write(done)
                else:
                    await context.write(committed_to_wire(event))

    async def GetSessionInfo(  # noqa: N802
        self, request: wire.GetSessionInfoRequest, _context: Context
    ) -> wire.GetSessionInfoResponse:
        """The state of one session."""
        session, _record = self._desk.get(request.session_id)
        return wire.GetSessionInfoResponse(session=self._info(session, planned(session)))

    async def ListSessions(  # noqa: N802
        self, request: wire.ListSessionsRequest, _context: Context
    ) -> wire.ListSessionsResponse:
        """A page of sessions, oldest first; their plans without the rejections."""
        page, following = self._desk.page(*page_from_wire(request))
        sessions = []
        for session in page:
            # One that ended a moment ago is still on the desk.
            with suppress(SessionNotFound, GroupLost):
                # Rejections of a large fleet would not fit a page of a thousand.
                sessions.append(self._info(session, replace(planned(session), rejections=())))
        return wire.ListSessionsResponse(
            sessions=sessions,
            next_page_token="" if following is None else str(following),
        )

    async def CloseSession(  # noqa: N802
        self, request: wire.CloseSessionRequest, _context: Context
    ) -> wire.CloseSessionResponse:
        """Ends a session; what runs in it ends within one block with SESSION_NOT_FOUND."""
        return wire.CloseSessionResponse(
            history_length=self._desk.close_session(request.session_id)
        )

    async def ForkSession(  # noqa: N802
        self, request: wire.ForkSessionRequest, _context: Context
    ) -> wire.ForkSessionResponse:
        """A new session with the first tokens of another one."""
        origin, _record = self._desk.get(request.session_id)
        length = request.history_length if request.HasField("history_length") else None
        async with origin.turn:
            session = await self._desk.fork(origin, length)
        record = session.served.store.get(session.session_id)
        return wire.ForkSessionResponse(
            session_id=session.session_id, history_length=len(record.session.history)
        )

    def _info(self, session: OpenSession, plan: Plan) -> wire.SessionInfo:
        store = session.served.store
        return session_to_wire(
            store.get(session.session_id),
            plan=plan,
            restorer=session.restorer,
            drop_reason=session.pairing.drop_reason,
            ttl_seconds=store.ttl_seconds,
            now=self._clock(),
        )
