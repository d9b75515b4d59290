"""Callers that are told apart by a name that each call carries, in place of what proves one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.rpc.calling import Calling, proven
from kakeya_fleet.node.rpc.handlers import behaviour_of


class Posing(grpc.aio.ServerInterceptor):
    """Takes the word of whoever calls for who it is; calls without one come from this machine."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        name = dict(handler_call_details.invocation_metadata or ()).get("caller")
        calling = None if name is None else Calling(Caller(str(name)))
        behaviour, make = behaviour_of(handler)

        async def awaiting(request: object, context: Any) -> object:
            proven.set(calling)
            return await behaviour(request, context)

        async def iterating(request: object, context: Any) -> AsyncIterator[object]:
            proven.set(calling)
            async for response in behaviour(request, context):
                yield response

        return make(
            iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
