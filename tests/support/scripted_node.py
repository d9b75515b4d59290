"""A scripted node: real gRPC servicers over a list of ids, recording what they see."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from kakeya.v1 import (
    capability_pb2,
    capability_pb2_grpc,
    model_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    placement_pb2,
    placement_pb2_grpc,
    runtime_pb2,
    runtime_pb2_grpc,
)
from tests.support.refusal import Refusal
from tests.support.scripted_answers import (
    MODEL,
    PLAN,
    VOCABULARY_SIZE,
    log_probabilities,
    next_token,
    seed_of,
    tokenizer_messages,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    Context: TypeAlias = aio.ServicerContext[Message, Message]

Event = TypeVar("Event")


@dataclass
class Stream:
    """What the node saw of one stream."""

    sent: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class ScriptedNode(
    runtime_pb2_grpc.RuntimeServiceServicer,
    capability_pb2_grpc.CapabilityServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
    placement_pb2_grpc.PlacementServiceServicer,
):
    def __init__(self, name: str = "mini-1", node_id: str = "aa") -> None:
        self.name = name
        self.node_id = node_id
        self.address = ""
        self.model = model_pb2.ModelOffer()
        self.model.CopyFrom(MODEL)
        # Of each method its own messages.
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.authorizations: list[str] = []
        self.refusals: dict[str, deque[Refusal]] = defaultdict(deque)
        self.sessions: dict[str, list[int]] = {}
        # Never used again: a closed session leaves its number behind.
        self.session_numbers = itertools.count()
        self.by_request: dict[str, str] = {}
        self.closed_by_request: dict[str, int] = {}
        self.traceparents: list[str] = []
        self.streams: list[Stream] = []
        # Tokens that commit on the node when a generation is cancelled, unsent.
        self.commits_on_cancel = 0
        self.block_size = 4
        self.vocabulary_size = VOCABULARY_SIZE
        # Whether it is of a version that takes a session's first tokens.
        self.takes_first_tokens = True
        # The stream stays silent after so many blocks; -1 never.
        self.silent_after = -1
        # The generation ends after so many tokens, as `done` says; -1 never.
        self.ends_after = -1
        self.done = runtime_pb2.GenerateDone(stop_reason=runtime_pb2.STOP_REASON_MAX_TOKENS)
        self.ends_without_done = False
        self.skips_position = False
        self.session_fields = runtime_pb2.SessionInfo()
        # What the answers to CreateSession and AppendTokens say besides.
        self.opened = runtime_pb2.CreateSessionResponse()
        self.appended = runtime_pb2.AppendTokensResponse()
        self.fleet_events = [fleet_of(self)]
        self.node_events: list[capability_pb2.WatchNodeResponse] = []
        self.session_events: list[runtime_pb2.WatchSessionsResponse] = []
        # What is told of a load, to its end.
        self.load_events = [
            model_service_pb2.LoadModelResponse(
                progress=model_service_pb2.LoadProgress(phase=model_service_pb2.LOAD_PHASE_READING)
            ),
            model_service_pb2.LoadModelResponse(
                loaded=model_service_pb2.LoadedModel(offer=self.model)
            ),
        ]
        # Whether a load has no end.
        self.loads_for_ever = False
        self.unloaded = model_service_pb2.UnloadModelResponse()
        # What is told of a pull, to its end.
        self.pull_events = [
            model_service_pb2.PullModelResponse(
                progress=model_service_pb2.PullProgress(phase=model_service_pb2.PULL_PHASE_COPYING)
            ),
            model_service_pb2.PullModelResponse(
                pulled=model_service_pb2.PulledModel(model_id=self.model.model_id)
            ),
        ]
        # Whether a pull has no end.
        self.pulls_for_ever = False
        self.removed = model_service_pb2.RemoveModelResponse()
        self.listed = model_service_pb2.ListModelsResponse()
        self.file_events: list[model_service_pb2.GetModelFilesResponse] = []
        self.piece_events: list[model_service_pb2.ReadPieceResponse] = []
        self.tokenizer_files: dict[str, bytes] = {}
        # What is sent in place of those files.
        self.tokenizer_messages: list[runtime_pb2.GetTokenizerResponse] | None = None
        self._server: aio.Server | None = None

    async def ExchangeCapabilities(  # noqa: N802
        self, request: capability_pb2.ExchangeCapabilitiesRequest, context: Context
    ) -> NoReturn:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no agent")

    async def ProbePeer(  # noqa: N802
        self, request: capability_pb2.ProbePeerRequest, context: Context
    ) -> capability_pb2.ProbePeerResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no agent")

    async def start(self, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(self, self._server)
        capability_pb2_grpc.add_CapabilityServiceServicer_to_server(self, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        placement_pb2_grpc.add_PlacementServiceServicer_to_server(self, self._server)
        asked = f"127.0.0.1:{port}"
        port = (
            self._server.add_secure_port(asked, credentials)
            if credentials
            else self._server.add_insecure_port(asked)
        )
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def refuse(self, method: str, code: grpc.StatusCode, **kwargs: object) -> None:
        """The next call of `method` is refused; several refusals queue up."""
        self.refusals[method].append(Refusal(code, **kwargs))  # type: ignore[arg-type]

    async def _enter(self, method: str, request: Message, context: Context) -> Refusal | None:
        self.requests[method].append(request)
        metadata = dict(context.invocation_metadata() or ())
        self.authorizations.append(str(metadata.get("authorization", "")))
        self.traceparents.append(str(metadata.get("traceparent", "")))
        if self.refusals[method] and self.refusals[method][0].skip:
            self.refusals[method][0].skip -= 1
        elif self.refusals[method]:
            refusal = self.refusals[method].popleft()
            if refusal.after or refusal.after_blocks:
                return refusal
            await self._abort(refusal, context)
        return None

    async def _leave(self, refusal: Refusal | None, context: Context) -> None:
        if refusal is not None:
            await self._abort(refusal, context)

    async def _abort(self, refusal: Refusal, context: Context) -> NoReturn:
        await context.abort(refusal.code, refusal.message, refusal.trailing())

    async def _history(self, session_id: str, context: Context) -> list[int]:
        if session_id not in self.sessions:
            await self._abort(
                Refusal(grpc.StatusCode.NOT_FOUND, "no session", "SESSION_NOT_FOUND"), context
            )
        return self.sessions[session_id]

    async def CreateSession(  # noqa: N802
        self, request: runtime_pb2.CreateSessionRequest, context: Context
    ) -> runtime_pb2.CreateSessionResponse:
        refusal = await self._enter("CreateSession", request, context)
        session_id = self.by_request.get(request.request_id) or f"s{next(self.session_numbers)}"
        if request.request_id:
            self.by_request[request.request_id] = session_id
        history = self.sessions.setdefault(session_id, [])
        first = list(request.initial_token_ids) if self.takes_first_tokens else []
        if first and not history:
            if max(first) >= self.vocabulary_size:
                del self.sessions[session_id]
                code = grpc.StatusCode.INVALID_ARGUMENT
                await self._abort(Refusal(code, "too large", "TOKEN_OUT_OF_VOCABULARY"), context)
            history.extend(first)
        await self._leave(refusal, context)
        plan = placement_pb2.Plan()
        plan.CopyFrom(PLAN)
        plan.verifier.node_id, plan.verifier.node_name = self.node_id, self.name
        response = runtime_pb2.CreateSessionResponse(
            session_id=session_id, model=self.model, vocabulary_size=self.vocabulary_size, plan=plan
        )
        if self.takes_first_tokens:
            response.history_length = len(history)
        response.MergeFrom(self.opened)
        return response

    async def AppendTokens(  # noqa: N802
        self, request: runtime_pb2.AppendTokensRequest, context: Context
    ) -> runtime_pb2.AppendTokensResponse:
        refusal = await self._enter("AppendTokens", request, context)
        history = await self._history(request.session_id, context)
        code = grpc.StatusCode.INVALID_ARGUMENT
        if not request.token_ids:
            await self._abort(Refusal(code, "no tokens", "EMPTY_APPEND"), context)
        if max(request.token_ids) >= self.vocabulary_size:
            await self._abort(Refusal(code, "too large", "TOKEN_OUT_OF_VOCABULARY"), context)
        if request.HasField("expected_history_length") and (
            request.expected_history_length != len(history)
        ):
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._abort(Refusal(code, "other length", "HISTORY_LENGTH_MISMATCH"), context)
        history.extend(request.token_ids)
        await self._leave(refusal, context)
        response = runtime_pb2.AppendTokensResponse(history_length=len(history))
        response.MergeFrom(self.appended)
        return response

    async def Generate(  # noqa: N802
        self, request: runtime_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[runtime_pb2.GenerateResponse]:
        refusal = await self._enter("Generate", request, context)
        history = await self._history(request.session_id, context)
        if request.HasField("expected_history_length") and (
            request.expected_history_length != len(history)
        ):
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._abort(Refusal(code, "other length", "HISTORY_LENGTH_MISMATCH"), context)
        if not history:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._abort(Refusal(code, "no history", "EMPTY_HISTORY"), context)
        stream = Stream()
        self.streams.append(stream)
        complete = False
        seed = seed_of(request)
        total = request.max_tokens if self.ends_after < 0 else self.ends_after
        blocks = 0
        try:
            while stream.sent < total:
                if blocks == self.silent_after:
                    await asyncio.Event().wait()
                if refusal is not None and blocks == refusal.after_blocks:
                    complete = True
                    await self._abort(refusal, context)
                first = len(history)
                size = min(self.block_size, total - stream.sent)
                block = [next_token(first + offset, seed) for offset in range(size)]
                history.extend(block)
                stream.sent += size
                blocks += 1
                tokens = log_probabilities(request, block)
                tokens.token_ids.extend(block)
                tokens.first_index = first + self.skips_position
                tokens.drafted_count = size - 1
                yield runtime_pb2.GenerateResponse(tokens=tokens)
                await asyncio.sleep(0)
            if not self.ends_without_done:
                done = runtime_pb2.GenerateDone()
                done.CopyFrom(self.done)
                done.generated_token_count = stream.sent
                done.history_length = len(history)
                done.seed = seed
                yield runtime_pb2.GenerateResponse(done=done)
            complete = True
        finally:
            # gRPC cancels the handler, or closes its generator at a failed send.
            if not complete:
                for _ in range(self.commits_on_cancel):
                    history.append(next_token(len(history)))
                stream.cancelled.set()
            stream.ended.set()

    async def GetSessionInfo(  # noqa: N802
        self, request: runtime_pb2.GetSessionInfoRequest, context: Context
    ) -> runtime_pb2.GetSessionInfoResponse:
        await self._enter("GetSessionInfo", request, context)
        history = await self._history(request.session_id, context)
        return runtime_pb2.GetSessionInfoResponse(session=self._info(request.session_id, history))

    def _info(self, session_id: str, history: list[int]) -> runtime_pb2.SessionInfo:
        info = runtime_pb2.SessionInfo(
            session_id=session_id,
            model_id="tiny",
            history_length=len(history),
            kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
            state=runtime_pb2.SESSION_STATE_IDLE,
            plan=PLAN,
        )
        info.MergeFrom(self.session_fields)
        return info

    async def ListSessions(  # noqa: N802
        self, request: runtime_pb2.ListSessionsRequest, context: Context
    ) -> runtime_pb2.ListSessionsResponse:
        await self._enter("ListSessions", request, context)
        start = int(request.page_token or 0)
        end = start + (request.page_size or 100)
        items = list(self.sessions.items())
        return runtime_pb2.ListSessionsResponse(
            sessions=[self._info(*item) for item in items[start:end]],
            next_page_token=str(end) if end < len(items) else "",
        )

    async def CloseSession(  # noqa: N802
        self, request: runtime_pb2.CloseSessionRequest, context: Context
    ) -> runtime_pb2.CloseSessionResponse:
        refusal = await self._enter("CloseSession", request, context)
        closed = self.closed_by_request.get(request.request_id)
        if closed is None:
            closed = len(await self._history(request.session_id, context))
            del self.sessions[request.session_id]
        if request.request_id:
            self.closed_by_request[request.request_id] = closed
        await self._leave(refusal, context)
        return runtime_pb2.CloseSessionResponse(history_length=closed)

    async def ForkSession(  # noqa: N802
        self, request: runtime_pb2.ForkSessionRequest, context: Context
    ) -> runtime_pb2.ForkSessionResponse:
        refusal = await self._enter("ForkSession", request, context)
        session_id = self.by_request.get(request.request_id) or (
            f"f{len(self.requests['ForkSession'])}"
        )
        if request.request_id:
            self.by_request[request.request_id] = session_id
        if session_id not in self.sessions:
            history = await self._history(request.session_id, context)
            self.sessions[session_id] = history[: request.history_length]
        kept = self.sessions[session_id]
        await self._leave(refusal, context)
        return runtime_pb2.ForkSessionResponse(session_id=session_id, history_length=len(kept))

    async def GetTokenizer(  # noqa: N802
        self, request: runtime_pb2.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[runtime_pb2.GetTokenizerResponse]:
        await self._enter("GetTokenizer", request, context)
        for message in self.tokenizer_messages or tokenizer_messages(self.tokenizer_files):
            yield message

    async def Embed(  # noqa: N802
        self, request: runtime_pb2.EmbedRequest, context: Context
    ) -> runtime_pb2.EmbedResponse:
        refusal = await self._enter("Embed", request, context)
        if not request.token_ids:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await self._abort(Refusal(code, "no tokens", "EMPTY_APPEND"), context)
        await self._leave(refusal, context)
        values = [0.0, 1.0] if sum(request.token_ids) % 2 else [1.0, 0.0]
        return runtime_pb2.EmbedResponse(values=values, model=self.model)

    async def GetNode(  # noqa: N802
        self, request: capability_pb2.GetNodeRequest, context: Context
    ) -> capability_pb2.GetNodeResponse:
        await self._enter("GetNode", request, context)
        return capability_pb2.GetNodeResponse(
            card=card_of(self),
            links=[
                capability_pb2.PeerLink(
                    node_id="bb", round_trip_seconds=0.001, address="10.8.0.2:7600"
                )
            ],
            load=capability_pb2.NodeLoad(session_count=len(self.sessions), kv_bytes=7),
            metrics_address="127.0.0.1:9",
        )

    async def ListLimits(  # noqa: N802
        self,
        request: capability_pb2.ListLimitsRequest,
        context: Context,
    ) -> capability_pb2.ListLimitsResponse:
        await self._enter("ListLimits", request, context)
        return capability_pb2.ListLimitsResponse(
            limits=[
                capability_pb2.LimitUse(
                    name="drafts.streams",
                    unit=capability_pb2.LIMIT_UNIT_PLACES,
                    limit=320,
                    used=3,
                    is_counted=True,
                    refused_share_count=2,
                    why="Because.",
                )
            ]
        )

    async def ListCodecs(  # noqa: N802
        self, request: capability_pb2.ListCodecsRequest, context: Context
    ) -> capability_pb2.ListCodecsResponse:
        await self._enter("ListCodecs", request, context)
        return capability_pb2.ListCodecsResponse(
            codecs=[
                capability_pb2.MeasuredCodec(
                    model_id="tiny",
                    weights_digest="cd",
                    arithmetic="torch bfloat16",
                    codec="int8",
                    bits=8.5,
                    position_count=96,
                    divergence_nats=0.0021,
                    error_nats=0.001,
                    qualities=[placement_pb2.KV_QUALITY_HIGH],
                    reasons=["Because."],
                    measured_at_unix=1.5,
                    is_settled=True,
                )
            ]
        )

    async def ResetCodecs(  # noqa: N802
        self, request: capability_pb2.ResetCodecsRequest, context: Context
    ) -> capability_pb2.ResetCodecsResponse:
        await self._enter("ResetCodecs", request, context)
        return capability_pb2.ResetCodecsResponse(codec_count=4)

    async def GetSpans(  # noqa: N802
        self, request: capability_pb2.GetSpansRequest, context: Context
    ) -> capability_pb2.GetSpansResponse:
        await self._enter("GetSpans", request, context)
        span = capability_pb2.Span(
            trace_id="4b" * 16,
            span_id="0f" * 8,
            name="generation",
            started_at_unix=100.0,
            duration_seconds=0.5,
            request_id=request.request,
            attributes=[capability_pb2.SpanAttribute(name="tokens", value="40")],
        )
        return capability_pb2.GetSpansResponse(
            node_id=self.node_id, node_name=self.name, spans=[span]
        )

    async def _watched(self, events: Iterable[Event]) -> AsyncIterator[Event]:
        stream = Stream()
        self.streams.append(stream)
        try:
            for event in events:
                yield event
                stream.sent += 1
            await asyncio.Event().wait()
        finally:
            stream.cancelled.set()

    async def WatchFleet(  # noqa: N802
        self, request: capability_pb2.WatchFleetRequest, context: Context
    ) -> AsyncIterator[capability_pb2.WatchFleetResponse]:
        await self._enter("WatchFleet", request, context)
        async for event in self._watched(self.fleet_events):
            yield event

    async def WatchNode(  # noqa: N802
        self, request: capability_pb2.WatchNodeRequest, context: Context
    ) -> AsyncIterator[capability_pb2.WatchNodeResponse]:
        await self._enter("WatchNode", request, context)
        async for event in self._watched(self.node_events):
            yield event

    async def WatchSessions(  # noqa: N802
        self, request: runtime_pb2.WatchSessionsRequest, context: Context
    ) -> AsyncIterator[runtime_pb2.WatchSessionsResponse]:
        await self._enter("WatchSessions", request, context)
        async for event in self._watched(self.session_events):
            yield event

    async def LoadModel(  # noqa: N802
        self, request: model_service_pb2.LoadModelRequest, context: Context
    ) -> AsyncIterator[model_service_pb2.LoadModelResponse]:
        await self._enter("LoadModel", request, context)
        for event in self.load_events:
            yield event
        if self.loads_for_ever:
            await asyncio.Event().wait()

    async def UnloadModel(  # noqa: N802
        self, request: model_service_pb2.UnloadModelRequest, context: Context
    ) -> model_service_pb2.UnloadModelResponse:
        await self._enter("UnloadModel", request, context)
        return self.unloaded

    async def PullModel(  # noqa: N802
        self, request: model_service_pb2.PullModelRequest, context: Context
    ) -> AsyncIterator[model_service_pb2.PullModelResponse]:
        await self._enter("PullModel", request, context)
        for event in self.pull_events:
            yield event
        if self.pulls_for_ever:
            await asyncio.Event().wait()

    async def RemoveModel(  # noqa: N802
        self, request: model_service_pb2.RemoveModelRequest, context: Context
    ) -> model_service_pb2.RemoveModelResponse:
        await self._enter("RemoveModel", request, context)
        return self.removed

    async def ListModels(  # noqa: N802
        self, request: model_service_pb2.ListModelsRequest, context: Context
    ) -> model_service_pb2.ListModelsResponse:
        await self._enter("ListModels", request, context)
        return self.listed

    async def GetModelFiles(  # noqa: N802
        self, request: model_service_pb2.GetModelFilesRequest, context: Context
    ) -> AsyncIterator[model_service_pb2.GetModelFilesResponse]:
        await self._enter("GetModelFiles", request, context)
        for event in self.file_events:
            yield event

    async def ReadPiece(  # noqa: N802
        self, request: model_service_pb2.ReadPieceRequest, context: Context
    ) -> AsyncIterator[model_service_pb2.ReadPieceResponse]:
        await self._enter("ReadPiece", request, context)
        for event in self.piece_events:
            yield event

    async def Leave(  # noqa: N802
        self, request: capability_pb2.LeaveRequest, context: Context
    ) -> capability_pb2.LeaveResponse:
        await self._enter("Leave", request, context)
        return capability_pb2.LeaveResponse(node_id=self.node_id)

    async def Plan(  # noqa: N802
        self, request: placement_pb2.PlanRequest, context: Context
    ) -> placement_pb2.PlanResponse:
        await self._enter("Plan", request, context)
        return placement_pb2.PlanResponse(plan=PLAN)


def card_of(node: ScriptedNode) -> capability_pb2.CapabilityCard:
    """A card with the node's model, and its address once it has one."""
    return capability_pb2.CapabilityCard(
        node_id=node.node_id,
        name=node.name,
        protocol_max=1,
        models=[node.model],
        addresses=[node.address] if node.address else [],
    )


def fleet_of(
    *nodes: ScriptedNode, dead: tuple[ScriptedNode, ...] = ()
) -> capability_pb2.WatchFleetResponse:
    """A snapshot of a fleet of these nodes, alive unless they are among `dead`."""
    statuses = [
        capability_pb2.NodeStatus(
            card=card_of(node),
            liveness=capability_pb2.LIVENESS_DEAD
            if node in dead
            else capability_pb2.LIVENESS_ALIVE,
        )
        for node in nodes
    ]
    return capability_pb2.WatchFleetResponse(
        snapshot=capability_pb2.FleetSnapshot(fleet_name="home", nodes=statuses)
    )


def join(*nodes: ScriptedNode) -> None:
    """Each of these nodes knows all of them."""
    for node in nodes:
        node.fleet_events = [fleet_of(*nodes)]
