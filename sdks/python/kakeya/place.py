"""A session on one node, and the calls that concern it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from grpc import aio

from kakeya.connection import Connection
from kakeya.errors import HistoryLengthMismatch
from kakeya.generated import wire
from kakeya.generated.values import SessionInfo
from kakeya.v1 import runtime_pb2

GenerateCall: TypeAlias = aio.UnaryStreamCall[
    runtime_pb2.GenerateRequest, runtime_pb2.GenerateResponse
]

MAX_APPEND_TOKENS = 65_536
"""Ids in one request: at most 5 bytes each, so well under the limit of 1 MiB."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session is; `opened` is how its node opened it, or what it was forked of."""

    connection: Connection
    opened: runtime_pb2.CreateSessionResponse
    session_id: str
    traceparent: str = ""
    """Sent with each call, when given (W3C Trace Context)."""

    async def append(
        self,
        token_ids: Sequence[int],
        history_length: int,
        pending: int,
        room_tokens: int = 0,
    ) -> runtime_pb2.AppendTokensResponse:
        """Appends at most MAX_APPEND_TOKENS ids to a history of `history_length`.

        `pending` more are left to compute. Sent again when the network failed.
        """
        request = runtime_pb2.AppendTokensRequest(
            session_id=self.session_id,
            token_ids=token_ids,
            expected_history_length=history_length,
            room_tokens=room_tokens,
        )
        timeout = self.connection.timeouts.append(len(token_ids) + pending)
        return await self.connection.unary(
            self.connection.runtime.AppendTokens,
            request,
            timeout,
            idempotent=True,
            traceparent=self.traceparent,
        )

    def generate(
        self, request: runtime_pb2.GenerateRequest, history_length: int, timeout: float
    ) -> GenerateCall:
        """Sends a generation's request for this session, whose history is so long here.

        A node where it is not refuses: no token is doubled or left out.
        """
        request.session_id = self.session_id
        request.expected_history_length = history_length
        return self.connection.runtime.Generate(
            request, timeout=timeout, metadata=self.connection.metadata_of(self.traceparent)
        )

    async def info(self) -> SessionInfo:
        """The session as its node sees it."""
        request = runtime_pb2.GetSessionInfoRequest(session_id=self.session_id)
        response = await self.connection.unary(
            self.connection.runtime.GetSessionInfo,
            request,
            self.connection.timeouts.unary,
            idempotent=True,
        )
        return wire.session_info(response.session)

    async def fork(self, history_length: int) -> Place:
        """A new session of the same node with the first ids of this one.

        Sent again when the network failed.
        """
        request = runtime_pb2.ForkSessionRequest(
            session_id=self.session_id,
            history_length=history_length,
            request_id=secrets.token_hex(16),
        )
        response = await self.connection.unary(
            self.connection.runtime.ForkSession,
            request,
            self.connection.timeouts.unary,
            idempotent=True,
            traceparent=self.traceparent,
        )
        return replace(self, session_id=response.session_id)

    async def close(self, timeout: float) -> None:
        """Ends the session within `timeout` seconds. Sent again when the network failed."""
        request = runtime_pb2.CloseSessionRequest(
            session_id=self.session_id, request_id=secrets.token_hex(16)
        )
        await self.connection.unary(
            self.connection.runtime.CloseSession,
            request,
            timeout,
            idempotent=True,
            traceparent=self.traceparent,
        )


async def open_session(
    connection: Connection,
    asked: runtime_pb2.CreateSessionRequest,
    history: Sequence[int],
    traceparent: str = "",
) -> Place:
    """Opens what was `asked` for with the first of `history`, as many as one request takes.

    How many of them the session has is `Place.opened.history_length`: none at nodes that
    do not know first tokens. Sent again when the network failed and there is a request id.
    """
    request = runtime_pb2.CreateSessionRequest()
    request.CopyFrom(asked)
    request.initial_token_ids.extend(history[:MAX_APPEND_TOKENS])
    first_count = len(request.initial_token_ids)
    timeouts = connection.timeouts
    opened = await connection.unary(
        connection.runtime.CreateSession,
        request,
        timeouts.append(first_count) if first_count else timeouts.unary,
        idempotent=bool(request.request_id),
        traceparent=traceparent,
    )
    if first_count and opened.history_length > first_count:
        raise HistoryLengthMismatch(
            f"the session of this request id has {opened.history_length} tokens already, "
            f"{first_count} were given; open it under another request id"
        )
    return Place(connection, opened, opened.session_id, traceparent)
