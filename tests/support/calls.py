"""Sessions over the wire, and errors as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from kakeya.v1 import placement_pb2, runtime_pb2, runtime_pb2_grpc
from tests.support.patience import PATIENCE_SECONDS

Given = TypeVar("Given")
FIXED = runtime_pb2.SPECULATION_MODE_FIXED
OFF = runtime_pb2.SPECULATION_MODE_OFF


@dataclass
class Refused:
    """An error: its status and its ErrorInfo."""

    code: grpc.StatusCode
    text: str
    reason: str
    domain: str
    metadata: dict[str, str]
    retry_seconds: float | None


def refused(error: grpc.aio.AioRpcError) -> Refused:
    """The error as a client reads it."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_seconds = None
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            detail.Unpack(info)
            if detail.Unpack(retry):
                retry_seconds = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return Refused(
        error.code(),
        error.details() or "",
        info.reason,
        info.domain,
        dict(info.metadata),
        retry_seconds,
    )


async def refused_by(failing: Awaitable[object]) -> Refused:
    """The error of a call that must fail."""
    try:
        await failing
    except grpc.aio.AioRpcError as error:
        return refused(error)
    raise AssertionError("the call succeeded")


async def until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until something that has no event of its own is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 counts wake nobody
            await asyncio.sleep(0.002)


async def given(
    attempt: Callable[[], Awaitable[Given | None]], seconds: float = PATIENCE_SECONDS
) -> Given:
    """What an attempt gives that is repeated for as long as it gives None."""
    async with asyncio.timeout(seconds):
        while (found := await attempt()) is None:  # noqa: ASYNC110 nobody tells of it
            await asyncio.sleep(0.1)
    return found


@dataclass
class Stream:
    """What one Generate gave."""

    token_ids: list[int] = field(default_factory=list)
    drafted_count: int = 0
    message_count: int = 0
    done: runtime_pb2.GenerateDone = field(default_factory=runtime_pb2.GenerateDone)


class Caller:
    """Calls on one node."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = runtime_pb2_grpc.RuntimeServiceStub(channel)

    async def open(
        self,
        *,
        model_id: str = "random",
        sink: int = 4,
        window: int = 32,
        mode: runtime_pb2.SpeculationMode.ValueType = OFF,
        proposer: str = "",
        proposer_node: str = "",
        block_size: int = 0,
        **fields: object,
    ) -> str:
        """The id of a new session with a short window."""
        response = await self.stub.CreateSession(
            runtime_pb2.CreateSessionRequest(
                model_id=model_id,
                kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
                sink_tokens=sink,
                window_tokens=window,
                speculation=runtime_pb2.Speculation(
                    mode=mode,
                    proposer_model_id=proposer,
                    proposer_node_id=proposer_node,
                    block_size=block_size,
                ),
                **fields,  # type: ignore[arg-type]
            ),
            timeout=PATIENCE_SECONDS,
        )
        return response.session_id

    async def append(
        self, session_id: str, token_ids: Sequence[int], expected: int | None = None
    ) -> int:
        """The history's length afterwards."""
        response = await self.stub.AppendTokens(
            runtime_pb2.AppendTokensRequest(
                session_id=session_id, token_ids=token_ids, expected_history_length=expected
            ),
            timeout=60,
        )
        return response.history_length

    async def generate(self, session_id: str, max_tokens: int, **fields: object) -> Stream:
        """The whole stream."""
        stream = Stream()
        call = self.stub.Generate(
            runtime_pb2.GenerateRequest(
                session_id=session_id,
                max_tokens=max_tokens,
                **fields,  # type: ignore[arg-type]
            ),
            timeout=60,
        )
        is_done = False
        async for message in call:
            stream.message_count += 1
            assert not is_done, "done is the last message"
            is_done = message.WhichOneof("kind") == "done"
            if is_done:
                stream.done = message.done
            else:
                stream.token_ids += message.tokens.token_ids
                stream.drafted_count += message.tokens.drafted_count
        assert is_done
        assert stream.done.generated_token_count == len(stream.token_ids)
        return stream

    async def info(self, session_id: str) -> runtime_pb2.SessionInfo:
        response = await self.stub.GetSessionInfo(
            runtime_pb2.GetSessionInfoRequest(session_id=session_id), timeout=10
        )
        return response.session

    async def close(self, session_id: str) -> int:
        response = await self.stub.CloseSession(
            runtime_pb2.CloseSessionRequest(session_id=session_id), timeout=10
        )
        return response.history_length

    async def refusal(self, method: str, request: Message) -> Refused:
        """The error of a unary or streaming call that must fail."""
        call = getattr(self.stub, method)(request, timeout=PATIENCE_SECONDS)
        try:
            if hasattr(call, "__aiter__"):
                async for _message in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return refused(error)
        raise AssertionError(f"{method} succeeded")
