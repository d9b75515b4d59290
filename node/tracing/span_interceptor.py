"""Notes each call that works for a request as a span, and tells its work whose it is."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc.aio

from kakeya_fleet.node.rpc.error_status import INTERNAL_REASON
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.rpc.trace_context import HEADER, TraceContext, working_for
from kakeya_fleet.node.watch.span_ring import Span, SpanRing

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Context, Handler

_SERVICES = (
    "/kakeya.v1.RuntimeService/",
    "/kakeya.v1.ProposerService/",
    "/kakeya.v1.ArchiveService/",
    "/kakeya.v1.TensorService/",
)
# Of nobody's request: they look at a node.
_LOOKS = ("Watch", "List", "Get")
CANCELLED = "CANCELLED"
KEPT_SESSIONS = 4096


class SpanInterceptor(grpc.aio.ServerInterceptor):
    """Comes last, next to the servicers: it looks at what they are asked.

    The calls of a session whose client names no trace are one trace, begun with the session.
    """

    def __init__(self, ring: SpanRing, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._ring = ring
        self._clock = clock
        self._sessions: OrderedDict[str, TraceContext] = OrderedDict()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler; as it is where no request is behind it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_SERVICES):
            return handler
        if method.rpartition("/")[2].startswith(_LOOKS):
            return handler
        header = dict(handler_call_details.invocation_metadata or ()).get(HEADER, "")
        caller = TraceContext.parse(header) if isinstance(header, str) else None
        behaviour, make = behaviour_of(handler)

        async def awaiting(request: object, context: Context) -> object:
            with self._noting(method, caller, request):
                answer = await behaviour(request, context)
                self._remember(str(getattr(answer, "session_id", "")))
                return answer

        async def iterating(request: object, context: Context) -> AsyncIterator[object]:
            with self._noting(method, caller, request):
                async for response in behaviour(request, context):
                    yield response

        return make(
            iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    @contextmanager
    def _noting(self, method: str, caller: TraceContext | None, request: object) -> Iterator[None]:
        session_id = str(getattr(request, "session_id", ""))
        parent = caller or self._sessions.get(session_id) or TraceContext.begun()
        own = parent.child()
        working_for.set(own)
        began, started, fault = self._clock(), time.monotonic(), ""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            fault = CANCELLED
            raise
        except Exception as error:
            fault = str(getattr(error, "reason", INTERNAL_REASON))
            raise
        finally:
            span = Span(
                trace_id=own.trace_id,
                span_id=own.span_id,
                parent_span_id=parent.span_id,
                name=method,
                started_at_unix=began,
                duration_seconds=time.monotonic() - started,
                request_id=str(getattr(request, "request_id", "")),
                fault=fault,
                attributes=(("session", session_id),) if session_id else (),
            )
            self._ring.add((span,))

    def _remember(self, session_id: str) -> None:
        """The trace of a session that was just opened."""
        own = working_for.get()
        if session_id and own is not None and session_id not in self._sessions:
            self._sessions[session_id] = own
            if len(self._sessions) > KEPT_SESSIONS:
                self._sessions.popitem(last=False)
