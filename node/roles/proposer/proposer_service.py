"""ProposerService: drafts for verifiers anywhere in the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import grpc.aio
from google.protobuf.message import DecodeError

from kakeya.v1 import proposer_pb2 as wire
from kakeya.v1 import proposer_pb2_grpc
from kakeya_fleet.engine.errors import BadParameters, EngineError
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.proposer.draft_memory import DraftMemories, DraftMemory
from kakeya_fleet.node.roles.proposer.draft_session import (
    DraftSession,
    FindInbox,
    check_block_size,
    check_ids,
    no_inbox,
    propose_once,
)
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.rpc.calling import calling_of
from kakeya_fleet.node.rpc.refusals import Draining, Refusal, TooManyStreams

if TYPE_CHECKING:
    from typing import TypeAlias

    UnaryContext: TypeAlias = grpc.aio.ServicerContext[
        wire.ProposeBlockRequest, wire.ProposeBlockResponse
    ]
    StreamContext: TypeAlias = grpc.aio.ServicerContext[wire.DraftRequest, wire.DraftResponse]

# Ids that a proposer without a vocabulary of its own takes; 31 bits, so that
# an id fits every index type below.
_ANY_VOCABULARY = 1 << 31


class ProposerServicer(proposer_pb2_grpc.ProposerServiceServicer):
    """Serves this node's proposers, within the node's bounds on draft streams."""

    def __init__(
        self,
        proposers: Mapping[str, ServedProposer],
        metrics: NodeMetrics,
        allowances: Allowances,
        find_inbox: FindInbox = no_inbox,
    ) -> None:
        """`find_inbox` knows the open feature links."""
        self._limits = allowances.limits.drafts
        self._memories = DraftMemories(allowances)
        self._streams = allowances.share("drafts.streams", TooManyStreams)
        self._find_inbox = find_inbox
        self._proposers = proposers
        self._metrics = metrics
        self._draft_count = 0
        self._sessions: dict[DraftSession, ServedProposer] = {}
        self._draining = False

    @property
    def stream_count(self) -> int:
        """Draft streams that are served now."""
        return self._streams.used

    @property
    def draft_count(self) -> int:
        """Blocks that were drafted since the start."""
        return self._draft_count

    def serves(self, served: ServedProposer) -> bool:
        """Whether a draft stream of that proposer is open."""
        return any(drafting is served for drafting in self._sessions.values())

    def drain(self) -> None:
        """Refuses new drafts and ends the open streams: their sessions go on alone."""
        self._draining = True
        for session in self._sessions:
            session.fail(_leaving())

    def end_streams(self, served: ServedProposer) -> None:
        """Ends the streams of one proposer, which is served no more."""
        for session, drafting in self._sessions.items():
            if drafting is served:
                session.fail(Draining(f"{served.offer.model_id} drafts here no more; ask another"))

    async def ProposeBlock(  # noqa: N802
        self, request: wire.ProposeBlockRequest, context: UnaryContext
    ) -> wire.ProposeBlockResponse:
        """One stateless draft."""
        self._refuse_when_draining()
        served = self._served(request.model_id)
        if not request.committed_token_ids:
            raise BadParameters(
                "committed_token_ids is empty; it must hold at least one id",
                field="committed_token_ids",
            )
        if served.proposer.encoder is not None:
            raise BadParameters(
                f"{request.model_id} drafts from context vectors; open a draft stream",
                field="model_id",
            )
        check_block_size(request.block_size)
        check_ids(request.committed_token_ids, served.offer.vocabulary_size or _ANY_VOCABULARY)
        ids = request.committed_token_ids
        with self._memories.of(calling_of(context).caller) as memory:
            memory.keep(0, len(ids), "committed_token_ids")
            draft, seconds = await propose_once(served, ids, request.block_size, request.step_count)
        self._draft_count += 1
        return wire.ProposeBlockResponse(
            token_ids=draft.token_ids,
            diffusion_step_count=draft.diffusion_step_count,
            forward_pass_count=draft.forward_pass_count,
            compute_seconds=seconds,
        )

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def Draft(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[wire.DraftRequest], context: StreamContext
    ) -> None:
        """One session's draft stream, until the caller leaves or the node drains."""
        self._refuse_when_draining()
        caller = calling_of(context).caller
        with (
            self._streams.holding(caller),
            self._memories.of(caller) as memory,
            self._metrics.draft_streams_active.track_inprogress(),
        ):
            await self._serve(request_iterator, context, memory)

    async def _serve(
        self,
        requests: AsyncIterator[wire.DraftRequest],
        context: StreamContext,
        memory: DraftMemory,
    ) -> None:
        opening = await _opening(requests, self._limits.opening_seconds)
        served = self._served(opening.model_id)
        session = DraftSession(served, opening, memory, self._find_inbox)
        self._sessions[session] = served
        try:
            await session.open()
            self._refuse_when_draining()
            # Tells the caller that the stream is open before any block is asked for.
            await context.send_initial_metadata(())
            await _answer(requests, session, context, self._drafted)
        finally:
            del self._sessions[session]
            await session.close()

    def _drafted(self, response: wire.DraftResponse) -> None:
        self._draft_count += response.status == wire.DRAFT_STATUS_DRAFTED

    def _served(self, model_id: str) -> ServedProposer:
        served = self._proposers.get(model_id)
        if served is None:
            known = ", ".join(sorted(self._proposers)) or "none"
            raise ModelNotFound(
                f"no proposer {model_id!r} is served here; served: {known}",
                model_id=model_id,
                served=known,
            )
        served.used()
        return served

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise _leaving()


async def _opening(requests: AsyncIterator[wire.DraftRequest], seconds: float) -> wire.DraftOpen:
    """The first message. Raises `BadParameters` when it is none or does not come."""
    try:
        async with asyncio.timeout(seconds):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or first.WhichOneof("kind") != "open":
        raise BadParameters(f"a draft stream begins with open, within {seconds:g} s", field="kind")
    return first.open


async def _answer(
    requests: AsyncIterator[wire.DraftRequest],
    session: DraftSession,
    context: StreamContext,
    answered: Callable[[wire.DraftResponse], None],
) -> None:
    """Reads ahead, so that a cancel overtakes the proposals that wait, and answers in order."""
    reading = asyncio.create_task(_read(requests, session), name="draft-read")
    try:
        while (response := await session.next_response()) is not None:
            answered(response)
            await context.write(response)
    finally:
        reading.cancel()
        await asyncio.wait((reading,))


async def _read(requests: AsyncIterator[wire.DraftRequest], session: DraftSession) -> None:
    try:
        async for request in requests:
            session.accept(request)
    except (EngineError, Refusal, DecodeError) as error:
        session.fail(error)
    else:
        session.end()


def _leaving() -> Draining:
    return Draining("this node is leaving the fleet; ask another proposer")
