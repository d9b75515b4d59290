"""grpc.health.v1 for the server as a whole (""), each role and each service.

A role whose models are still being loaded is NOT_SERVING, and so is the whole server until
all are loaded that the node was started with. A node that drains is NOT_SERVING everywhere,
so that clients go elsewhere before the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    from typing import TypeAlias

    Context: TypeAlias = grpc.aio.ServicerContext[
        health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    ]

HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """The answers for all known names: they end serving together."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names` serve from the beginning, and so does the server as a whole."""
        self._names = frozenset(names)
        self._serving = True
        self._roles: Mapping[str, bool] = {"": True}
        self._changed = asyncio.Event()
        self._closed = False

    def tell(self, roles: Mapping[str, bool], *, whole: bool) -> None:
        """Which roles there are, whether each serves now, and whether the whole server does."""
        told = {**roles, "": whole}
        if told != self._roles:
            self._roles = told
            self._wake()

    def drain(self) -> None:
        """Turns every name to NOT_SERVING, for good."""
        self._serving = False
        self._wake()

    def close(self) -> None:
        """Ends the watches, so that the server can stop."""
        self._closed = True
        self._wake()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """The status of a name; NOT_FOUND for an unknown one."""
        if self._status(request.service).status == _Response.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service here")
        return self._status(request.service)

    async def Watch(  # noqa: N802
        self,
        request: health_pb2.HealthCheckRequest,
        context: Context,  # noqa: ARG002 part of every handler
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now, then each change; SERVICE_UNKNOWN for an unknown name."""
        while True:
            changed = self._changed
            told = self._status(request.service)
            yield told
            # The last change is told before the end.
            if self._closed and told == self._status(request.service):
                return
            while told == self._status(request.service) and not self._closed:
                await changed.wait()
                changed = self._changed

    def _status(self, name: str) -> health_pb2.HealthCheckResponse:
        if name not in self._names and name not in self._roles:
            return _Response(status=_Response.SERVICE_UNKNOWN)
        serving = self._serving and self._roles.get(name, True)
        return _Response(status=_Response.SERVING if serving else _Response.NOT_SERVING)

    def _wake(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()
