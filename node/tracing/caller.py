"""The trace that a call belongs to, as its caller says in `traceparent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

if TYPE_CHECKING:
    # gRPC hands interceptors the handlers of every service.
    Handler = grpc.RpcMethodHandler[Any, Any]

HEADER = "traceparent"
# "00-" trace "-" span "-" flags; later versions may be longer.
_MOST_CHARACTERS = 256

traceparent: ContextVar[str] = ContextVar("traceparent", default="")
"""Of the call whose task runs; empty when its caller traces nothing."""


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Notes each call's `traceparent` for the call's own task, which runs its handler."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, as it is."""
        for key, value in handler_call_details.invocation_metadata or ():
            if key == HEADER and isinstance(value, str):
                traceparent.set(value[:_MOST_CHARACTERS])
        return await continuation(handler_call_details)
