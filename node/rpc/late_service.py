"""A gRPC service whose servicer is made when somebody needs it, at a server that runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from kakeya_fleet.node.rpc.handlers import behaviour_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

    from kakeya_fleet.node.rpc.handlers import Behaviour, Context, Handler


class LateService(grpc.GenericRpcHandler):
    """Nothing can be added to a server that runs: so this is, before what answers is there.

    Until `answer_with` a call awaits `needed`, whose work that is, once it has its place and was
    found to be allowed, and is answered then; those after it meet the servicer's own handlers.
    """

    def __init__(
        self,
        service: ServiceDescriptor,
        add: Callable[[Any, grpc.aio.Server], None],
        needed: Callable[[], Awaitable[object]],
    ) -> None:
        """`add` is what generated code adds a servicer of `service` with."""
        self.name = service.full_name
        self._needed = needed
        waiting = SimpleNamespace(**{each.name: self._waiting(each) for each in service.methods})
        self._handlers = _added(lambda server: add(waiting, server))

    def answer_with(self, add: Callable[[grpc.aio.Server], None]) -> None:
        """Calls are answered from now on by the servicer that `add` adds to a server."""
        self._handlers = _added(add)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """See `grpc.GenericRpcHandler.service`."""
        service, _, method = handler_call_details.method.strip("/").partition("/")
        return self._handlers.get(method) if service == self.name else None

    def _waiting(self, method: MethodDescriptor) -> Behaviour:
        async def own() -> Behaviour:
            await self._needed()
            behaviour, _ = behaviour_of(self._handlers[method.name])
            return behaviour

        async def awaiting(request: object, context: Context) -> object:
            return await (await own())(request, context)

        async def iterating(request: object, context: Context) -> AsyncIterator[object]:
            behaviour = await own()
            if not inspect.isasyncgenfunction(behaviour):
                # It writes its answers itself.
                await behaviour(request, context)
                return
            async for response in behaviour(request, context):
                yield response

        return iterating if method.server_streaming else awaiting


class _Handlers:
    """A server to generated code: what it adds is kept by the methods' names."""

    by_method: Mapping[str, Handler]

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """The same handlers as those that are registered."""

    def add_registered_method_handlers(
        self, _service: str, handlers: Mapping[str, Handler]
    ) -> None:
        self.by_method = handlers


def _added(add: Callable[[grpc.aio.Server], None]) -> Mapping[str, Handler]:
    kept = _Handlers()
    add(cast("grpc.aio.Server", kept))
    return kept.by_method
