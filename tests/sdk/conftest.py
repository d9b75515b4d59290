"""A scripted node: real gRPC servicers over a list of ids, recording what they see."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from kakeya.v1 import (
    capability_pb2,
    capability_pb2_grpc,
    model_pb2,
    placement_pb2,
    placement_pb2_grpc,
    runtime_pb2,
    runtime_pb2_grpc,
)

VOCABULARY_SIZE = 1000
MODEL = model_pb2.ModelOffer(
    model_id="tiny",
    role=model_pb2.ROLE_VERIFIER,
    kind=model_pb2.MODEL_KIND_AUTOREGRESSIVE,
    tokenizer_digest="ab" * 32,
    vocabulary_size=VOCABULARY_SIZE,
    context_length=2048,
    step_costs=[model_pb2.StepCost(token_count=1, seconds=0.01)],
    exact=True,
)
PLAN = placement_pb2.Plan(
    verifier=placement_pb2.Placement(node_id="aa", node_name="mini-1", model_id="tiny"),
    proposer=placement_pb2.Placement(node_id="bb", node_name="mini-2", model_id="ngram"),
    transport=placement_pb2.TRANSPORT_GRPC,
    block_size=4,
    reasons=["mini-2 drafts fastest"],
    rejections=[
        placement_pb2.Rejection(
            verifier=placement_pb2.Placement(node_id="cc"),
            reason=placement_pb2.REJECTION_REASON_NOT_ALIVE,
            explanation="mini-3 is dead",
        )
    ],
)


def next_token(position: int) -> int:
    """The scripted model: the id at a position, whatever came before."""
    return (position * 7 + 3) % VOCABULARY_SIZE


def log_probabilities(request: runtime_pb2.GenerateRequest, block: list[int]) -> dict[str, object]:
    """Fields of a block: the id at n has -n, its alternatives the ids behind it."""
    if not request.HasField("top_log_probabilities"):
        return {}
    count = request.top_log_probabilities
    alternatives = [
        runtime_pb2.TokenAlternatives(
            token_ids=[token + step for step in range(count)],
            log_probabilities=[float(-token - step) for step in range(count)],
        )
        for token in block
    ]
    return {
        "log_probabilities": [float(-token) for token in block],
        "alternatives": alternatives if count else [],
    }


@dataclass
class Refusal:
    """How a call is refused; with `after`, the work is done and only the answer lost."""

    code: grpc.StatusCode
    message: str = "refused"
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    domain: str = "kakeya"
    retry_seconds: float | None = None
    raw_details: bytes | None = None
    after: bool = False

    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        if self.raw_details is not None:
            return (("grpc-status-details-bin", self.raw_details),)
        if not self.reason:
            return ()
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        details = [
            error_details_pb2.ErrorInfo(
                reason=self.reason, domain=self.domain, metadata=self.metadata
            )
        ]
        if self.retry_seconds is not None:
            seconds = int(self.retry_seconds)
            delay = duration_pb2.Duration(
                seconds=seconds, nanos=round((self.retry_seconds - seconds) * 1e9)
            )
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        return (("grpc-status-details-bin", status.SerializeToString()),)


@dataclass
class Stream:
    """What the node saw of one stream."""

    sent: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class ScriptedNode(
    runtime_pb2_grpc.RuntimeServiceServicer,
    capability_pb2_grpc.CapabilityServiceServicer,
    placement_pb2_grpc.PlacementServiceServicer,
):
    def __init__(self) -> None:
        self.address = ""
        self.requests: dict[str, list[object]] = defaultdict(list)
        self.refusals: dict[str, deque[Refusal]] = defaultdict(deque)
        self.sessions: dict[str, list[int]] = {}
        # Never used again: a closed session leaves its number behind.
        self.session_numbers = itertools.count()
        self.by_request: dict[str, str] = {}
        self.streams: list[Stream] = []
        # Tokens that commit on the node when a generation is cancelled, unsent.
        self.commits_on_cancel = 0
        self.block_size = 4
        # The stream stays silent after so many blocks; -1 never.
        self.silent_after = -1
        self.ends_without_done = False
        self.skips_position = False
        self.fleet_events = [
            capability_pb2.WatchFleetResponse(
                snapshot=capability_pb2.FleetSnapshot(
                    fleet_name="home",
                    nodes=[
                        capability_pb2.NodeStatus(
                            card=capability_pb2.CapabilityCard(
                                node_id="aa", name="mini-1", protocol_max=1, models=[MODEL]
                            ),
                            liveness=capability_pb2.LIVENESS_ALIVE,
                        )
                    ],
                )
            )
        ]
        self._server: aio.Server | None = None

    async def start(self) -> None:
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(self, self._server)
        capability_pb2_grpc.add_CapabilityServiceServicer_to_server(self, self._server)
        placement_pb2_grpc.add_PlacementServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def refuse(self, method: str, code: grpc.StatusCode, **kwargs: object) -> None:
        """The next call of `method` is refused; several refusals queue up."""
        self.refusals[method].append(Refusal(code, **kwargs))  # type: ignore[arg-type]

    async def _enter(self, method: str, request: object, context: object) -> Refusal | None:
        self.requests[method].append(request)
        if self.refusals[method]:
            refusal = self.refusals[method].popleft()
            if refusal.after:
                return refusal
            await self._abort(refusal, context)
        return None

    async def _leave(self, refusal: Refusal | None, context: object) -> None:
        if refusal is not None:
            await self._abort(refusal, context)

    async def _abort(self, refusal: Refusal, context: object) -> NoReturn:
        await context.abort(refusal.code, refusal.message, refusal.trailing())  # type: ignore[attr-defined]
        raise AssertionError

    async def _history(self, session_id: str, context: object) -> list[int]:
        if session_id not in self.sessions:
            await self._abort(
                Refusal(grpc.StatusCode.NOT_FOUND, "no session", "SESSION_NOT_FOUND"), context
            )
        return self.sessions[session_id]

    async def CreateSession(self, request, context):  # noqa: N802
        refusal = await self._enter("CreateSession", request, context)
        session_id = self.by_request.get(request.request_id) or f"s{next(self.session_numbers)}"
        if request.request_id:
            self.by_request[request.request_id] = session_id
        self.sessions.setdefault(session_id, [])
        await self._leave(refusal, context)
        return runtime_pb2.CreateSessionResponse(
            session_id=session_id, model=MODEL, vocabulary_size=VOCABULARY_SIZE, plan=PLAN
        )

    async def AppendTokens(self, request, context):  # noqa: N802
        refusal = await self._enter("AppendTokens", request, context)
        history = await self._history(request.session_id, context)
        code = grpc.StatusCode.INVALID_ARGUMENT
        if not request.token_ids:
            await self._abort(Refusal(code, "no tokens", "EMPTY_APPEND"), context)
        if max(request.token_ids) >= VOCABULARY_SIZE:
            await self._abort(Refusal(code, "too large", "TOKEN_OUT_OF_VOCABULARY"), context)
        if request.HasField("expected_history_length") and (
            request.expected_history_length != len(history)
        ):
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._abort(Refusal(code, "other length", "HISTORY_LENGTH_MISMATCH"), context)
        history.extend(request.token_ids)
        await self._leave(refusal, context)
        return runtime_pb2.AppendTokensResponse(history_length=len(history))

    async def Generate(self, request, context):  # noqa: N802
        await self._enter("Generate", request, context)
        history = await self._history(request.session_id, context)
        if not history:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await self._abort(Refusal(code, "no history", "EMPTY_HISTORY"), context)
        stream = Stream()
        self.streams.append(stream)
        complete = False
        try:
            while stream.sent < request.max_tokens:
                if stream.sent // self.block_size == self.silent_after:
                    await asyncio.Event().wait()
                first = len(history)
                size = min(self.block_size, request.max_tokens - stream.sent)
                block = [next_token(first + offset) for offset in range(size)]
                history.extend(block)
                stream.sent += size
                yield runtime_pb2.GenerateResponse(
                    tokens=runtime_pb2.CommittedTokens(
                        token_ids=block,
                        first_index=first + self.skips_position,
                        drafted_count=size - 1,
                        **log_probabilities(request, block),
                    )
                )
                await asyncio.sleep(0)
            if not self.ends_without_done:
                yield runtime_pb2.GenerateResponse(
                    done=runtime_pb2.GenerateDone(
                        stop_reason=runtime_pb2.STOP_REASON_MAX_TOKENS,
                        generated_token_count=stream.sent,
                        history_length=len(history),
                        seed=request.seed,
                    )
                )
            complete = True
        finally:
            # gRPC cancels the handler, or closes its generator at a failed send.
            if not complete:
                for _ in range(self.commits_on_cancel):
                    history.append(next_token(len(history)))
                stream.cancelled.set()
            stream.ended.set()

    async def GetSessionInfo(self, request, context):  # noqa: N802
        await self._enter("GetSessionInfo", request, context)
        history = await self._history(request.session_id, context)
        return runtime_pb2.GetSessionInfoResponse(session=self._info(request.session_id, history))

    def _info(self, session_id: str, history: list[int]) -> runtime_pb2.SessionInfo:
        return runtime_pb2.SessionInfo(
            session_id=session_id,
            model_id="tiny",
            history_length=len(history),
            kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
            state=runtime_pb2.SESSION_STATE_IDLE,
            plan=PLAN,
        )

    async def ListSessions(self, request, context):  # noqa: N802
        await self._enter("ListSessions", request, context)
        start = int(request.page_token or 0)
        end = start + (request.page_size or 100)
        items = list(self.sessions.items())
        return runtime_pb2.ListSessionsResponse(
            sessions=[self._info(*item) for item in items[start:end]],
            next_page_token=str(end) if end < len(items) else "",
        )

    async def CloseSession(self, request, context):  # noqa: N802
        await self._enter("CloseSession", request, context)
        history = await self._history(request.session_id, context)
        del self.sessions[request.session_id]
        return runtime_pb2.CloseSessionResponse(history_length=len(history))

    async def ForkSession(self, request, context):  # noqa: N802
        await self._enter("ForkSession", request, context)
        history = await self._history(request.session_id, context)
        kept = history[: request.history_length]
        session_id = f"f{len(self.requests['ForkSession'])}"
        self.sessions[session_id] = kept
        return runtime_pb2.ForkSessionResponse(session_id=session_id, history_length=len(kept))

    async def GetNode(self, request, context):  # noqa: N802
        await self._enter("GetNode", request, context)
        return capability_pb2.GetNodeResponse(
            card=capability_pb2.CapabilityCard(node_id="aa", name="mini-1", protocol_max=1),
            links=[capability_pb2.PeerLink(node_id="bb", round_trip_seconds=0.001)],
            load=capability_pb2.NodeLoad(session_count=len(self.sessions), kv_bytes=7),
            metrics_address="127.0.0.1:9",
        )

    async def WatchFleet(self, request, context):  # noqa: N802
        await self._enter("WatchFleet", request, context)
        stream = Stream()
        self.streams.append(stream)
        try:
            for event in self.fleet_events:
                yield event
                stream.sent += 1
            await asyncio.Event().wait()
        finally:
            stream.cancelled.set()

    async def Leave(self, request, context):  # noqa: N802
        await self._enter("Leave", request, context)
        return capability_pb2.LeaveResponse(node_id="aa")

    async def Plan(self, request, context):  # noqa: N802
        await self._enter("Plan", request, context)
        return placement_pb2.PlanResponse(plan=PLAN)


@pytest.fixture
async def node() -> AsyncIterator[ScriptedNode]:
    """A node on the test's own event loop."""
    scripted = ScriptedNode()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def other_node() -> AsyncIterator[ScriptedNode]:
    """A second node on the test's own event loop."""
    scripted = ScriptedNode()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
def threaded_node() -> Iterator[ScriptedNode]:
    """A node on an event loop of its own thread, for tests that block."""
    loop = asyncio.new_event_loop()
    # Loops of one process wake for each other's gRPC events; one of them finds nothing.
    loop.set_exception_handler(lambda _loop, _context: None)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    scripted = ScriptedNode()
    asyncio.run_coroutine_threadsafe(scripted.start(), loop).result(10)
    yield scripted
    asyncio.run_coroutine_threadsafe(scripted.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def token_at() -> object:
    """The scripted model: position to id."""
    return next_token
