"""What answers HTTP, on sockets that are bound."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from kakeya import AsyncClient, Timeouts
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.config.config import is_loopback
from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.callers import ANSWERING, CallersClients, identifying
from kakeya_fleet.node.http.connections import OpenConnections
from kakeya_fleet.node.http.deprecation import HEADERS, PAGE_PATH, PATHS
from kakeya_fleet.node.http.health_checks import HealthChecks
from kakeya_fleet.node.http.listening import ANY_HOST
from kakeya_fleet.node.http.middleware import enveloping, guarding, measuring, noting
from kakeya_fleet.node.http.node_pages import NodePages
from kakeya_fleet.node.http.own_hosts import OwnHosts
from kakeya_fleet.node.http.page_origins import PageOrigins
from kakeya_fleet.node.http.recent_tokens import RecentTokens
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.request_spans import REQUEST_ID, request_id_of, spanning
from kakeya_fleet.node.http.routes import Answering, routes
from kakeya_fleet.node.http.server_log import server_log
from kakeya_fleet.node.http.settings import HttpSettings, ServingNode
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import SpanRing


class HttpApplication:
    """One node's HTTP. `start`, `open` once the node serves, `close`."""

    def __init__(
        self,
        settings: HttpSettings,
        metrics: NodeMetrics,
        allowances: Allowances,
        spans: SpanRing,
        trust: Trust | None,
        recent: RecentTokens,
    ) -> None:
        """`spans` gets the requests below /v1; `recent` hears of the node's sessions.

        `trust` is None in a fleet without an authority, in which nothing is encrypted.
        """
        self._settings = settings
        self._metrics = metrics
        self._allowances = allowances
        self._limits = allowances.limits.http
        self._spans = spans
        self._trust = trust
        self._recent = recent
        self._servers: list[asyncio.Server] = []
        self._runner: web.AppRunner | None = None
        self._pages = NodePages(metrics)
        self._client: AsyncClient | None = None
        self._clients: CallersClients | None = None
        self._desk: AnswerDesk | None = None
        self._checks: HealthChecks | None = None

    async def start(self, sockets: Mapping[socket.socket, ssl.SSLContext | None]) -> None:
        """Answers on bound sockets, encrypted where there is a context."""
        runner = web.AppRunner(
            self._application(),
            # A client that leaves ends its generation, also while nothing is written.
            handler_cancellation=True,
            access_log=None,
            logger=server_log(),
            keepalive_timeout=self._limits.idle_seconds,
            shutdown_timeout=self._limits.close_seconds,
        )
        await runner.setup()
        self._runner = runner
        loop = asyncio.get_running_loop()
        for bound, context in sockets.items():
            server = await loop.create_server(
                self._connections,
                sock=bound,
                ssl=context,
                ssl_handshake_timeout=self._limits.header_seconds if context else None,
            )
            self._servers.append(server)

    def open(self, node: ServingNode) -> None:
        """The node serves."""
        # The node may be the only verifier, and leave: an answer must not wait for its return.
        waits = Timeouts(resume=0)
        own = AsyncClient(node.address, tls=node.tls, timeouts=waits)
        self._client = own
        self._clients = CallersClients(
            own,
            lambda key: AsyncClient(node.address, tls=node.tls, api_key=key, timeouts=waits),
        )
        self._desk = AnswerDesk(
            own,
            self._clients,
            self._allowances,
            self._metrics,
            lambda: bool(node.roles.awaited()),
        )
        self._checks = HealthChecks(node.roles, self._recent, time.monotonic, self._settings.health)
        self._pages.open(
            name=node.name,
            address=node.address,
            checks=self._checks,
            is_draining=lambda: node.roles.draining,
            views=node.views,
        )

    async def close(self) -> None:
        """Ends what runs, closes its sessions and the sockets."""
        for server in self._servers:
            server.close()
        if self._checks is not None:
            self._checks.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._desk is not None:
            await self._desk.close()
        if self._clients is not None:
            await self._clients.close()
        if self._client is not None:
            await self._client.close()

    def _application(self) -> web.Application:
        settings = self._settings
        names = (*_machine_names(settings.host), *settings.names)
        https_names = (*_machine_names(settings.https_host or settings.host), *settings.names)
        keys = ApplicationKeys(self._trust) if self._trust is not None else None
        page_origins = PageOrigins(settings.origins)
        self._connections = OpenConnections(self._protocol, self._allowances)
        application = web.Application(
            client_max_size=self._limits.body_bytes,
            middlewares=[
                noting(self._connections),
                measuring(self._metrics, time.monotonic),
                spanning(self._spans),
                enveloping,
                guarding(OwnHosts(names), OwnHosts(https_names), page_origins),
                identifying(keys),
            ],
        )
        pages = self._pages
        application.router.add_get("/", pages.index)
        application.router.add_get("/health", pages.health)
        application.router.add_get("/metrics", pages.metrics)
        application.router.add_get("/sd/prometheus", pages.prometheus)
        application.router.add_get(PAGE_PATH, pages.long_sessions)
        for method, path, answer in routes():
            # HEAD where there is GET, as with the pages.
            if method == "GET":
                application.router.add_get(path, self._when_open(answer))
            else:
                application.router.add_route(method, path, self._when_open(answer))
        application.on_response_prepare.append(partial(_sign, page_origins))
        return application

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        if server is None:
            raise RuntimeError("the HTTP server is not set up")
        return server()

    def _when_open(self, answer: Answering) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._desk is None:
                raise HttpRefusal("LOADING", "the node starts; come back", retry_after=1.0)
            return await answer(self._desk, request)

        return handle


async def _sign(pages: PageOrigins, request: web.Request, response: web.StreamResponse) -> None:
    """Headers of every answer."""
    response.headers.update(pages.headers(request))
    response.headers["Server"] = "kakeya"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.path in PATHS:
        response.headers.update(HEADERS)
    if request.path.startswith(ANSWERING):
        # The official clients show it with their errors, and `fleet trace` takes it; Anthropic's
        # have a name of their own for it.
        response.headers[REQUEST_ID] = response.headers["request-id"] = request_id_of(request)


def _machine_names(host: str) -> tuple[str, ...]:
    """What this machine is called on its network; nothing while only it can ask.

    Addresses need no name here: a connection tells the one that it came to.
    """
    if is_loopback(host):
        return ()
    name = socket.gethostname()
    bound = () if host in ANY_HOST else (host,)
    return (*bound, name, f"{name}.local")
