"""The node's HTTP: bound with the gRPC server, loaded when somebody calls.

What answers, aiohttp and the APIs, is 12 MB and a sixth of an agent's start, and most agents of a
fleet are never asked anything by HTTP. A connection that comes before it is loaded waits in
the socket's backlog.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import TYPE_CHECKING

import structlog

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.http.listening import ANY_HOST, http_socket
from kakeya_fleet.node.http.recent_tokens import RecentTokens
from kakeya_fleet.node.http.settings import HttpSettings, ServingNode
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.trust.tls import kept_https_context
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import SpanRing

if TYPE_CHECKING:
    from kakeya_fleet.node.http.application import HttpApplication

_log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
LOADS = 30
"""A crowd of callers may leave no descriptor for what is to be loaded: it is tried again, each time
for whoever waits, until idle callers must have been sent away."""


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
        self._settings = settings
        self._metrics = metrics
        self._allowances = allowances
        self._spans = spans if spans is not None else SpanRing()
        self._trust = trust
        self._sockets: dict[socket.socket, ssl.SSLContext | None] = {}
        self._loading: asyncio.Task[None] | None = None
        self._application: HttpApplication | None = None
        self._node: ServingNode | None = None
        self.port = 0
        """The port that was bound; 0 before."""
        self.https_port = 0
        """The port of HTTPS that was bound; 0 without."""
        self.address = ""
        """Where others reach it, host:port."""
        self.recent = RecentTokens(time.monotonic)
        """Hears of the node's sessions."""

    async def start(self) -> None:
        """Listens; what needs the node is refused until `open`. Raises `PortInUse`."""
        settings = self._settings
        bound = http_socket(settings.host, settings.port, settings.last_port)
        self._sockets[bound] = None
        host, self.port = bound.getsockname()[:2]
        self.address = join_address(addresses_of(host)[0] if host in ANY_HOST else host, self.port)
        if self._trust is not None and settings.https_port >= 0:
            bound = http_socket(settings.https_host, settings.https_port, settings.last_https_port)
            self._sockets[bound] = kept_https_context(self._trust)
            self.https_port = bound.getsockname()[1]
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.add_reader(each, self.load)

    def open(self, node: ServingNode) -> None:
        """The node serves."""
        self._node = node
        if self._application is not None:
            self._application.open(node)

    def load(self) -> None:
        """Begins to load what answers, in a thread: imports hold up nobody."""
        if self._loading is None:
            self._unwatch()
            self._loading = asyncio.create_task(self._load(), name="loading of HTTP")
            self._loading.add_done_callback(self._loaded)

    async def close(self) -> None:
        """Ends what runs, closes its sessions and the sockets."""
        if self._loading is None:
            self._unwatch()
        elif not self._loading.done():
            self._loading.cancel()
            await asyncio.wait({self._loading})
        if self._application is not None:
            await self._application.close()
        while self._sockets:
            self._sockets.popitem()[0].close()

    async def _load(self) -> None:
        make = await _loaded_application()
        application = make(
            self._settings,
            self._metrics,
            self._allowances,
            self._spans,
            self._trust,
            self.recent,
        )
        self._application = application
        if self._node is not None:
            application.open(self._node)
        await application.start(self._sockets)

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        """Whoever waits for an answer is sent away where there can be none."""
        if loading.cancelled():
            return
        error = loading.exception()
        if error is not None:
            _log.error("http_not_loaded", exc_info=error, mend="install the fleet again")
            for bound in self._sockets:
                bound.close()

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)


async def _loaded_application() -> type[HttpApplication]:
    """What answers; raises what importing it does, at once where a part of it is not there."""
    for _ in range(LOADS - 1):
        try:
            return await asyncio.to_thread(_application_class)
        except ModuleNotFoundError:
            raise
        except (ImportError, OSError) as error:
            _log.warning("http_not_loaded_yet", cause=str(error), retry_seconds=RETRY_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)
    return await asyncio.to_thread(_application_class)


def _application_class() -> type[HttpApplication]:
    from kakeya_fleet.node.http.application import HttpApplication  # noqa: PLC0415 by design

    return HttpApplication
