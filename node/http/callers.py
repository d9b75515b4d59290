"""Who sends a request, and the client that acts for them: each key has one of its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kakeya import AsyncClient
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.trust.keys import KEY_PREFIX, Scope
from kakeya_fleet.node.admission.caller import Caller, caller_of, caller_of_key
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.trust.application_keys import ApplicationKeys

MOST_CLIENTS = 64
"""Of keys that were used lately: each has a connection or two of gRPC."""
ANSWERING = ("/v1/", "/api/")
"""Paths below these are for who generates."""
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """Who sends a request; `key` is the text of its key, empty without one."""

    caller: Caller
    key: str = field(default="", repr=False)


CALLER = web.RequestKey("caller", HttpCaller)
"""What `identifying` found of a request."""


def is_secure(request: web.Request) -> bool:
    """Whether it came by TLS."""
    transport = request.transport
    return transport is not None and transport.get_extra_info("sslcontext") is not None


def identifying(keys: ApplicationKeys | None) -> Middleware:
    """Knows callers by their keys, and lets nobody without one in by TLS.

    `keys` is None in a fleet without an authority, where nobody has any.
    """

    @web.middleware
    async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
        bearer = _bearer(request.headers.get("Authorization", "")) or _api_key(request)
        caller = HttpCaller(caller_of(request.remote or ""))
        if keys is not None and (is_secure(request) or bearer.startswith(KEY_PREFIX)):
            caller = _holder(bearer, keys, request.path)
        request[CALLER] = caller
        return await handler(request)

    return identify


def _holder(bearer: str, keys: ApplicationKeys, path: str) -> HttpCaller:
    if not bearer:
        raise HttpRefusal(
            "KEY_MISSING",
            "show a key of the fleet: `authorization: Bearer KEY`, or `x-api-key: KEY`",
        )
    try:
        key = keys.holder_of(bearer)
    except FleetError as error:
        raise HttpRefusal(error.reason, str(error)) from error
    needed = _scope_for(path)
    if needed is not None and needed not in key.scopes:
        told = ", ".join(sorted(key.scopes))
        raise HttpRefusal(
            "NOT_PERMITTED", f"{path[:80]} is for keys that {needed}, this one is for {told}"
        )
    return HttpCaller(caller_of_key(key.key_id), bearer)


def _scope_for(path: str) -> Scope | None:
    """What a path needs a key for; None where any will do."""
    if path.startswith(ANSWERING):
        return Scope.GENERATE
    return Scope.OBSERVE if path in ("/metrics", "/sd/prometheus") else None


def _api_key(request: web.Request) -> str:
    """As Anthropic's clients show a key; the header is none that a page of elsewhere may send."""
    return request.headers.get("x-api-key", "").strip()


def _bearer(header: str) -> str:
    is_bearer = header[: len(_SCHEME)].lower() == _SCHEME
    return header[len(_SCHEME) :].strip() if is_bearer else ""


@dataclass(slots=True)
class _Kept:
    client: AsyncClient
    used_by: int = 0


class CallersClients:
    """Clients of the own node, by whose key they show. Belongs to one event loop.

    Sessions are then their key's at every node, also at those that the client is led to.
    """

    def __init__(self, own: AsyncClient, make: Callable[[str], AsyncClient]) -> None:
        """`own` acts for callers without a key, and is not closed here; `make` of a key's text."""
        self._own = own
        self._make = make
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def client_of(self, caller: HttpCaller) -> AsyncIterator[AsyncClient]:
        """The caller's client, for as long as the context lasts."""
        if not caller.key:
            yield self._own
            return
        if caller.key not in self._kept:
            self._kept[caller.key] = _Kept(self._make(caller.key))
        kept = self._kept[caller.key]
        self._kept.move_to_end(caller.key)
        kept.used_by += 1
        try:
            yield kept.client
        finally:
            kept.used_by -= 1
            self._let_go()

    def _let_go(self) -> None:
        """Closes the longest unused beyond `MOST_CLIENTS`."""
        for key in list(self._kept):
            if len(self._kept) <= MOST_CLIENTS:
                return
            if not self._kept[key].used_by:
                closing = asyncio.create_task(self._kept.pop(key).client.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all that it made."""
        for kept in self._kept.values():
            await kept.client.close()
        self._kept.clear()
        if self._closing:
            await asyncio.wait(self._closing)
