"""The node's HTTP server: bound with the gRPC server, open once that one answers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler

from kakeya import AsyncClient, Timeouts, Tls
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.config.config import is_loopback, join_address
from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.callers import ANSWERING, CallersClients, identifying
from kakeya_fleet.node.http.connections import OpenConnections
from kakeya_fleet.node.http.deprecation import HEADERS, PAGE_PATH, PATHS
from kakeya_fleet.node.http.health_checks import HealthChecks, HealthSettings, HealthyRoles
from kakeya_fleet.node.http.listening import ANY_HOST, http_socket
from kakeya_fleet.node.http.middleware import enveloping, guarding, measuring, noting
from kakeya_fleet.node.http.node_pages import NodePages
from kakeya_fleet.node.http.own_hosts import OwnHosts
from kakeya_fleet.node.http.page_origins import PageOrigins
from kakeya_fleet.node.http.recent_tokens import RecentTokens
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.request_spans import REQUEST_ID, request_id_of, spanning
from kakeya_fleet.node.http.routes import Answering, routes
from kakeya_fleet.node.http.server_log import server_log
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.tls import kept_https_context
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import SpanRing


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where to listen, as configured; `names` are further names of the node.

    With a `https_port` clients with a key call `https_host`, which is all of it that other
    machines of a fleet with an authority can reach; -1 for none.
    """

    host: str
    port: int
    last_port: int = 0
    https_host: str = ""
    https_port: int = -1
    last_https_port: int = 0
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Of pages elsewhere that may use the node."""
    health: HealthSettings = field(default_factory=HealthSettings)


@dataclass(frozen=True, slots=True)
class ServingNode:
    """The node that HTTP serves; `address` is its gRPC.

    With `tls` that is encrypted, and so are the nodes that the node names in its place.
    """

    name: str
    address: str
    roles: HealthyRoles
    views: Callable[[], Iterable[NodeView]]
    tls: Tls | None = None


class HttpServer:
    """One node's HTTP. `start`, `open` once the node serves, `close`."""

    def __init__(
        self,
        settings: HttpSettings,
        metrics: NodeMetrics,
        allowances: Allowances,
        spans: SpanRing | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`spans` gets the requests below /v1.

        `trust` is None in a fleet without an authority, in which nothing is encrypted.
        """
        self._spans = spans if spans is not None else SpanRing()
        self._trust = trust
        self._https_socket: socket.socket | None = None
        self._https_server: asyncio.Server | None = None
        self._clients: CallersClients | None = None
        self._settings = settings
        self._allowances = allowances
        self._limits = allowances.limits.http
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._metrics = metrics
        self._pages = NodePages(metrics)
        self._client: AsyncClient | None = None
        self._desk: AnswerDesk | None = None
        self._checks: HealthChecks | None = None
        self.recent = RecentTokens(time.monotonic)
        """Hears of the node's sessions."""

    @property
    def port(self) -> int:
        """The port that was bound; 0 before."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    @property
    def address(self) -> str:
        """Where others reach it, host:port."""
        if self._socket is None:
            return ""
        bound = str(self._socket.getsockname()[0])
        host = addresses_of(bound)[0] if bound in ANY_HOST else bound
        return join_address(host, self.port)

    @property
    def https_port(self) -> int:
        """The port of HTTPS that was bound; 0 without."""
        return int(self._https_socket.getsockname()[1]) if self._https_socket is not None else 0

    async def start(self) -> None:
        """Listens; what needs the node is refused until `open`. Raises `PortInUse`."""
        settings = self._settings
        self._socket = http_socket(settings.host, settings.port, settings.last_port)
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
        self._server = await loop.create_server(self._connections, sock=self._socket)
        if self._trust is not None and settings.https_port >= 0:
            self._https_socket = http_socket(
                settings.https_host, settings.https_port, settings.last_https_port
            )
            self._https_server = await loop.create_server(
                self._connections,
                sock=self._https_socket,
                ssl=kept_https_context(self._trust),
                ssl_handshake_timeout=self._limits.header_seconds,
            )

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
        self._checks = HealthChecks(node.roles, self.recent, time.monotonic, self._settings.health)
        self._pages.open(
            name=node.name,
            address=node.address,
            checks=self._checks,
            is_draining=lambda: node.roles.draining,
            views=node.views,
        )

    async def close(self) -> None:
        """Ends what runs, closes its sessions and the socket."""
        for server in (self._server, self._https_server):
            if server is not None:
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
        for bound in (self._socket, self._https_socket):
            if bound is not None:
                bound.close()

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
