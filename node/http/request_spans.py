"""Requests for answers as spans, and the trace that they belong to."""

from __future__ import annotations

import asyncio
import secrets
import time

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kakeya_fleet.node.http.callers import ANSWERING
from kakeya_fleet.node.rpc.trace_context import HEADER, TraceContext, working_for
from kakeya_fleet.node.watch.span_ring import MAX_REQUEST_CHARACTERS, Span, SpanRing

REQUEST_ID = "x-request-id"
_KEY = web.RequestKey("kakeya_request_id", str)


def spanning(ring: SpanRing) -> Middleware:
    """Notes requests for answers by their route, status and request id.

    The caller's `traceparent` and `X-Request-Id` count where they are well-formed, else the
    node makes its own; the answer has the latter.
    """

    @web.middleware
    async def span(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(ANSWERING):
            return await handler(request)
        parent = TraceContext.parse(request.headers.get(HEADER, "")) or TraceContext.begun()
        own = parent.child()
        working_for.set(own)
        request_id = request_id_of(request)
        began, started, fault, status = time.time(), time.monotonic(), "", ""
        try:
            answer = await handler(request)
            status = str(answer.status)
            return answer
        except asyncio.CancelledError:
            fault = "CANCELLED"
            raise
        finally:
            route = request.match_info.route.resource
            ring.add(
                (
                    Span(
                        own.trace_id,
                        own.span_id,
                        parent.span_id,
                        f"{request.method} {route.canonical if route is not None else 'other'}",
                        began,
                        time.monotonic() - started,
                        request_id,
                        fault,
                        (("status", status),) if status else (),
                    ),
                )
            )

    return span


def request_id_of(request: web.Request) -> str:
    """What a request is called."""
    if _KEY not in request:
        # Refused before any middleware saw it.
        request[_KEY] = _request_id(request)
    return request[_KEY]


def _request_id(request: web.Request) -> str:
    given = request.headers.get(REQUEST_ID, "")
    if 0 < len(given) <= MAX_REQUEST_CHARACTERS and given.isascii() and given.isprintable():
        return given
    return f"req-{secrets.token_hex(12)}"
