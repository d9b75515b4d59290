"""Pages of other sites that may use this node from a browser (CORS, the Fetch standard)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from aiohttp import web

_METHODS = "GET, POST"
_HEADERS = "authorization, content-type, x-api-key, x-request-id, anthropic-version, traceparent"
_SHOWN = "x-request-id, x-ignored-fields, retry-after"
# A browser asks again after so many seconds; browsers take no more than two hours of it.
_ASKED_AGAIN_SECONDS = "600"


class PageOrigins:
    """Those that the configuration names, scheme://host[:port]; nobody's by default."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def allows(self, origin: str) -> bool:
        """Whether pages of an origin may send requests and read their answers."""
        return origin.lower() in self._origins

    def headers(self, request: web.Request) -> Mapping[str, str]:
        """What an answer tells the browser; nothing unless an allowed page asked."""
        origin = request.headers.get("Origin", "")
        if not self.allows(origin):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _SHOWN,
            "Vary": "Origin",
        }

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks before it sends; None for anything else."""
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not asks or not self.allows(request.headers.get("Origin", "")):
            return None
        allowed = {
            "Access-Control-Allow-Methods": _METHODS,
            # Of those that clients in browsers send; each names its own beginning with x-stainless.
            "Access-Control-Allow-Headers": _allowed(request),
            "Access-Control-Max-Age": _ASKED_AGAIN_SECONDS,
        }
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=allowed)


def _allowed(request: web.Request) -> str:
    asked = request.headers.get("Access-Control-Request-Headers", "").lower().split(",")
    own = [
        name.strip() for name in asked if name.strip().startswith(("x-stainless-", "anthropic-"))
    ]
    return ", ".join([_HEADERS, *own])
