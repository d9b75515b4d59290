"""What every request passes: whose it is, and errors in one shape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kakeya import KakeyaError
from kakeya_fleet.node.http.callers import is_secure
from kakeya_fleet.node.http.connections import OpenConnections
from kakeya_fleet.node.http.dialect import dialect_of
from kakeya_fleet.node.http.own_hosts import OwnHosts
from kakeya_fleet.node.http.page_origins import PageOrigins
from kakeya_fleet.node.http.refusal import HttpRefusal, refusal_of
from kakeya_fleet.node.http.request_spans import request_id_of
from kakeya_fleet.node.metrics import NodeMetrics

_log = structlog.get_logger(__name__)


def noting(connections: OpenConnections) -> Middleware:
    """Tells the connection that its request is being answered."""

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        connections.began(transport)
        try:
            return await handler(request)
        finally:
            connections.ended(transport)

    return note


def measuring(metrics: NodeMetrics, clock: Callable[[], float]) -> Middleware:
    """Counts requests by route and status; `clock` is monotonic seconds."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = clock()
        status = "left"
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "other"
        task = asyncio.current_task()
        if task is not None:
            # So that a stall of the event loop is told by the route that caused it.
            task.set_name(f"HTTP {route}")
        try:
            answer = await handler(request)
            status = str(answer.status)
            return answer
        finally:
            metrics.http_requests.labels(route=route, status=status).inc()
            metrics.http_request_seconds.labels(route=route).observe(clock() - began)

    return measure


@web.middleware
async def enveloping(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers errors in the envelope of the API that was called."""
    try:
        return await handler(request)
    except HttpRefusal as refusal:
        return _refused(refusal, request)
    except KakeyaError as error:
        return _refused(refusal_of(error), request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _refused(_of_server(error, request), request)
    except ConnectionResetError:
        # The client is gone: nobody reads what this says.
        return web.Response(status=499)
    except asyncio.CancelledError:
        raise
    except Exception:  # noqa: BLE001 - a fault of ours is answered, and told with its place
        _log.exception("http_fault", path=request.path)
        fault = HttpRefusal("INTERNAL_ERROR", "a fault of this node; see its log")
        return _refused(fault, request)


def guarding(hosts: OwnHosts, secure_hosts: OwnHosts, pages: PageOrigins) -> Middleware:
    """Refuses what pages of elsewhere make a browser send, but for those of `pages`.

    By TLS the node is asked for by `secure_hosts`: its certificate has them.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        named = secure_hosts if is_secure(request) else hosts
        if not named.allows_host(host, _reached_at(request)):
            raise HttpRefusal(
                "FOREIGN_HOST",
                f"{host[:80]!r} is not a name of this node: ask by its address, or add the name "
                "to http_hosts in its configuration",
            )
        origin = request.headers.get("Origin")
        if origin is not None and pages.allows(origin):
            return pages.preflight(request) or await handler(request)
        if origin is not None and not named.allows_origin(origin, host):
            raise HttpRefusal(
                "FOREIGN_ORIGIN",
                f"pages of {origin[:80]!r} may not use this node, unless http_origins in its "
                "configuration names them",
            )
        if origin is None and _is_of_another_page(request):
            raise HttpRefusal("FOREIGN_ORIGIN", "pages of other sites may not use this node")
        return await handler(request)

    return guard


def _is_of_another_page(request: web.Request) -> bool:
    """Whether a browser says so (W3C Fetch Metadata); a link from elsewhere may open a page.

    Images and scripts of a page are asked for without Origin.
    """
    opens = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    site = request.headers.get("Sec-Fetch-Site", "none")
    return site not in ("same-origin", "none") and not opens


def _reached_at(request: web.Request) -> str:
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) else ""


def _refused(refusal: HttpRefusal, request: web.Request) -> web.Response:
    body = dialect_of(request.path).refused(refusal, request_id_of(request))
    return web.json_response(body, status=refusal.status, headers=refusal.headers())


def _of_server(error: web.HTTPException, request: web.Request) -> HttpRefusal:
    """A refusal of the HTTP library: no such path, or another method."""
    if error.status == 404:
        message = f"there is nothing at {request.path[:80]!r}; GET / lists what there is"
        return HttpRefusal("NO_SUCH_PATH", message)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return HttpRefusal("WRONG_METHOD", f"{request.path[:80]} takes {allowed}")
    return HttpRefusal("BAD_REQUEST", error.reason, status=error.status)
