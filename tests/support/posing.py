"""Callers that are told apart by a name that each call carries, in place of what proves one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.node.admission.caller import Caller, caller_of_key
from kakeya_fleet.node.rpc.calling import Calling, proven
from kakeya_fleet.node.rpc.handlers import behaviour_of


class Posing(grpc.aio.ServerInterceptor):
    """Takes the word of whoever calls for who it is; calls without one come from this machine.

    Who is called as one of `keys` has what that key allows.
    """

    def __init__(self, *keys: ApplicationKey) -> None:
        self._keys = {key.name: key for key in keys}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        name = dict(handler_call_details.invocation_metadata or ()).get("caller")
        calling = self._calling(str(name)) if name is not None else None
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

    def _calling(self, name: str) -> Calling:
        key = self._keys.get(name)
        if key is None:
            return Calling(Caller(name))
        return Calling(caller_of_key(key.key_id), key=key)
