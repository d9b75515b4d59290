"""RuntimeService: token sessions over the wire."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc.aio

from kakeya.v1 import runtime_pb2 as wire
from kakeya.v1 import runtime_pb2_grpc
from kakeya_fleet.engine.speculation.generation_report import TIMELINE_BLOCKS
from kakeya_fleet.node.membership.card_wire import offer_to_wire
from kakeya_fleet.node.planning.plan_wire import kv_strategy_to_wire, plan_to_wire
from kakeya_fleet.node.roles.verifier.appending import Appending
from kakeya_fleet.node.roles.verifier.embedding import Embedding
from kakeya_fleet.node.roles.verifier.generations import Generations
from kakeya_fleet.node.roles.verifier.key_spending import KeySpending
from kakeya_fleet.node.roles.verifier.observer import Finished
from kakeya_fleet.node.roles.verifier.open_session import OpenSession, planned
from kakeya_fleet.node.roles.verifier.report_wire import committed_to_wire, done_to_wire
from kakeya_fleet.node.roles.verifier.runtime_wire import (
    GenerationSpec,
    generation_spec_from_wire,
    page_from_wire,
    session_spec_from_wire,
)
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle
from kakeya_fleet.node.roles.verifier.session_watch import SessionWatch, session_info
from kakeya_fleet.node.roles.verifier.tokenizer_files import tokenizer_messages
from kakeya_fleet.node.roles.verifier.watched_sessions import subject_of
from kakeya_fleet.node.rpc.calling import Calling, calling_of
from kakeya_fleet.node.rpc.message_limits import check_answer
from kakeya_fleet.node.rpc.refusals import AnswerTooLarge, MalformedMessage
from kakeya_fleet.node.watch.backlog import Backlog
from kakeya_fleet.node.watch.snapshot_parts import snapshot_and_changes

if TYPE_CHECKING:
    from typing import TypeAlias

    from google.protobuf.message import Message

    Context: TypeAlias = grpc.aio.ServicerContext[Message, Message]

# Latest blocks of each session that a snapshot has unless it is asked for others.
DEFAULT_BLOCKS = 64
# Of sessions in a page, before the last of them: 20 ms of the event loop.
PAGE_BYTES = 1 << 20


class RuntimeServicer(runtime_pb2_grpc.RuntimeServiceServicer):
    """Answers with what the registry knows, and the lifecycle and the generations do.

    A session is its caller's own: to all others it does not exist. Each operation on one waits
    for its turn; info, list and close do not.
    """

    def __init__(
        self,
        lifecycle: SessionLifecycle,
        generations: Generations,
        watch: SessionWatch,
        spending: KeySpending,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._lifecycle = lifecycle
        self._registry = lifecycle.registry
        self._appending = Appending(lifecycle, clock)
        self._embedding = Embedding(lifecycle, clock)
        self._generations = generations
        self._watch = watch
        self._spending = spending
        self._clock = clock

    async def CreateSession(  # noqa: N802
        self, request: wire.CreateSessionRequest, context: Context
    ) -> wire.CreateSessionResponse:
        """Opens a session, with the first tokens of its history."""
        self._lifecycle.check_first_tokens(request.model_id, len(request.initial_token_ids))
        spec = session_spec_from_wire(request)
        calling = calling_of(context)
        self._spending.begin(calling)
        self._spending.spend(calling, len(request.initial_token_ids))
        session = await self._appending.open(spec, request.initial_token_ids, calling.caller)
        record = self._registry.get(session.session_id)
        offer = session.served.offer
        response = wire.CreateSessionResponse(
            session_id=session.session_id,
            model=offer_to_wire(offer),
            vocabulary_size=offer.vocabulary_size,
            plan=plan_to_wire(planned(session)),
            kv_strategy=kv_strategy_to_wire(session.spec.kv_strategy),
            history_length=len(record.session.history),
            prefill_seconds=session.opening_seconds or 0.0,
            codec=session.spec.codec,
        )
        try:
            check_answer(response)
        except AnswerTooLarge:
            # Its client will never know it, nor would one that asks again with this request id.
            self._registry.close(session.session_id)
            raise
        return response

    async def AppendTokens(  # noqa: N802
        self, request: wire.AppendTokensRequest, context: Context
    ) -> wire.AppendTokensResponse:
        """Appends, and computes keys and values: see `Appending.append`."""
        session = self._own(request.session_id, context)
        # What was begun is counted, also if the caller leaves before it is done.
        self._spending.begin(calling_of(context))
        self._spending.spend(calling_of(context), len(request.token_ids))
        expected = (
            request.expected_history_length if request.HasField("expected_history_length") else None
        )
        async with session.turn:
            before = session.record.session.recomputed_count
            appended = await self._appending.append(
                session, request.token_ids, expected, request.room_tokens
            )
            recomputed = session.record.session.recomputed_count - before
        return wire.AppendTokensResponse(
            history_length=appended.history_length,
            prefill_seconds=appended.prefill_seconds,
            recomputed_token_count=recomputed,
        )

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def Generate(  # type: ignore[override]  # noqa: N802
        self, request: wire.GenerateRequest, context: Context
    ) -> None:
        """Streams tokens as they commit, then one done."""
        spec = generation_spec_from_wire(request, os.urandom)
        session = self._own(request.session_id, context)
        spec.check_for_model(session.served.verifier.info)
        calling = calling_of(context)
        self._spending.begin(calling)
        with self._spending.generating(calling):
            await self._stream(session, spec, calling, context)

    async def _stream(
        self, session: OpenSession, spec: GenerationSpec, calling: Calling, context: Context
    ) -> None:
        seconds_left = context.time_remaining()
        async with aclosing(self._generations.run(session, spec, seconds_left)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    await context.write(done_to_wire(event))
                else:
                    await context.write(committed_to_wire(event))
                    self._spending.spend(calling, len(event.token_ids))
                    self._spending.go_on(calling)

    async def GetSessionInfo(  # noqa: N802
        self, request: wire.GetSessionInfoRequest, context: Context
    ) -> wire.GetSessionInfoResponse:
        """The state of one session."""
        session = self._own(request.session_id, context)
        return wire.GetSessionInfoResponse(session=session_info(session, self._clock()))

    async def ListSessions(  # noqa: N802
        self, request: wire.ListSessionsRequest, context: Context
    ) -> wire.ListSessionsResponse:
        """A page of sessions, oldest first; their plans without the rejections.

        Of the caller's own, and of everybody's for one who observes.
        """
        page, following = self._registry.page(
            *page_from_wire(request), owner=_seen_by(calling_of(context))
        )
        response = wire.ListSessionsResponse()
        nbytes = 0
        for session in page:
            if nbytes >= PAGE_BYTES:
                break
            info = session_info(session, self._clock(), rejections=False)
            nbytes += info.ByteSize()
            response.sessions.append(info)
        if len(response.sessions) < len(page):
            following = page[len(response.sessions) - 1].record.ordinal
        response.next_page_token = "" if following is None else str(following)
        return response

    async def CloseSession(  # noqa: N802
        self, request: wire.CloseSessionRequest, context: Context
    ) -> wire.CloseSessionResponse:
        """Ends a session; what runs in it ends within one block with SESSION_NOT_FOUND."""
        length = self._registry.close(
            request.session_id, calling_of(context).caller, request.request_id
        )
        return wire.CloseSessionResponse(history_length=length)

    async def ForkSession(  # noqa: N802
        self, request: wire.ForkSessionRequest, context: Context
    ) -> wire.ForkSessionResponse:
        """A new session with the first tokens of another one."""
        origin = self._own(request.session_id, context)
        length = request.history_length if request.HasField("history_length") else None
        self._spending.begin(calling_of(context))
        async with origin.turn:
            session = await self._lifecycle.fork(
                origin, length, calling_of(context).caller, request.request_id
            )
        record = self._registry.get(session.session_id)
        return wire.ForkSessionResponse(
            session_id=session.session_id, history_length=len(record.session.history)
        )

    async def Embed(  # noqa: N802
        self, request: wire.EmbedRequest, context: Context
    ) -> wire.EmbedResponse:
        """A text's vector: see `Embedding.embed`."""
        model_id, count = request.model_id, len(request.token_ids)
        self._lifecycle.check_first_tokens(model_id, count)
        served = self._lifecycle.verifiers.served(model_id)
        calling = calling_of(context)
        self._spending.begin(calling)
        self._spending.spend(calling, count)
        vector = await self._embedding.embed(served, request.token_ids, calling.caller)
        return wire.EmbedResponse(values=vector, model=offer_to_wire(served.offer))

    async def GetTokenizer(  # noqa: N802
        self, request: wire.GetTokenizerRequest, _context: Context
    ) -> AsyncIterator[wire.GetTokenizerResponse]:
        """The header, then the bytes of the files."""
        async for message in tokenizer_messages(self._lifecycle.verifiers.served(request.model_id)):
            yield message

    async def WatchSessions(  # noqa: N802
        self, request: wire.WatchSessionsRequest, context: Context
    ) -> AsyncIterator[wire.WatchSessionsResponse]:
        """A snapshot, then every session that changes, of those that `ListSessions` has.

        Raises `WatcherTooSlow`, `AnswerTooLarge`.
        """
        if request.block_count > TIMELINE_BLOCKS:
            raise MalformedMessage(
                f"block_count is {request.block_count}: give 0 to {TIMELINE_BLOCKS}"
            )
        blocks = request.block_count or DEFAULT_BLOCKS
        owner = _seen_by(calling_of(context))
        with self._watch.watcher(owner) as watcher:
            sessions = self._watch.watched(blocks, owner)
            backlog = Backlog(sessions.keys(), subject_of)
            async for response in snapshot_and_changes(
                watcher, backlog, sessions, in_parts=request.in_parts
            ):
                yield response

    def _own(self, session_id: str, context: Context) -> OpenSession:
        """The caller's session. Raises as `SessionRegistry.get`."""
        return self._registry.opened(session_id, calling_of(context).caller)


def _seen_by(calling: Calling) -> str | None:
    """Whose sessions are listed for a caller; None for everybody's."""
    return None if calling.observes else calling.caller
