"""The node's own pages: what there is, health, metrics, targets for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.node.http.deprecation import PAGE_PATH, page
from kakeya_fleet.node.http.health_checks import HealthChecks
from kakeya_fleet.node.http.target_page import TargetPage
from kakeya_fleet.node.metrics import NodeMetrics

INDEX = {
    "models": "/v1/models",
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
    "messages": "/v1/messages",
    "ollama": "/api/tags",
    "health": "/health",
    "metrics": "/metrics",
    "prometheus_targets": "/sd/prometheus",
    "long_sessions": PAGE_PATH,
}


class NodePages:
    """Handlers of one node; those that need it loaded are given it by `open`."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics
        self._address = ""
        self._name = ""
        self._checks: HealthChecks | None = None
        self._is_draining: Callable[[], bool] = bool
        self._targets = TargetPage(tuple)

    def open(
        self,
        *,
        name: str,
        address: str,
        checks: HealthChecks,
        is_draining: Callable[[], bool],
        views: Callable[[], Iterable[NodeView]],
    ) -> None:
        """The node serves: `address` is its gRPC, `views` are the nodes of its fleet."""
        self._name, self._address = name, address
        self._checks, self._is_draining = checks, is_draining
        self._targets = TargetPage(views)

    async def index(self, _request: web.Request) -> web.Response:
        """GET /."""
        said = {"node": self._name, "address": self._address, "paths": INDEX}
        return web.json_response(said)

    async def long_sessions(self, _request: web.Request) -> web.Response:
        """The page that Deprecation and Sunset point to."""
        return web.Response(text=page(self._address or "HOST:PORT"))

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics, in the format that the Accept header asks for."""
        accept = request.headers.get("Accept", "")
        body, content_type = self._metrics.exposition(accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def prometheus(self, _request: web.Request) -> web.Response:
        """GET /sd/prometheus: HTTP service discovery."""
        return web.Response(body=await self._targets.body(), content_type="application/json")

    async def health(self, _request: web.Request) -> web.Response:
        """GET /health: 200 only when every role does what it is there for."""
        if self._checks is None:
            return self._unwell("LOADING", "the node starts; come back")
        if self._is_draining():
            return self._unwell("DRAINING", "the node is leaving the fleet")
        found = await self._checks.findings()
        roles = [finding.body() for finding in found]
        fault = next((finding for finding in found if finding.reason), None)
        if fault is not None:
            return self._unwell(fault.reason, fault.message, roles)
        return web.json_response(
            {"status": "ok", "node": self._name, "reason": None, "message": None, "roles": roles},
            headers=_UNCACHED,
        )

    def _unwell(self, reason: str, message: str, roles: Iterable[object] = ()) -> web.Response:
        body = {
            "status": "unavailable",
            "node": self._name,
            "reason": reason,
            "message": message,
            "roles": list(roles),
        }
        return web.json_response(body, status=503, headers={**_UNCACHED, "Retry-After": "1"})


_UNCACHED = {"Cache-Control": "no-store"}
