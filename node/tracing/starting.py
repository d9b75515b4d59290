"""Starts traces where they are configured and can be."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.tracing.caller import CallerInterceptor
from kakeya_fleet.node.tracing.session_traces import SessionTraces

if TYPE_CHECKING:
    from kakeya_fleet.node.tracing.trace_export import TraceExport

# Where a collector takes traces when its URL has no path.
TRACES_PATH = "/v1/traces"
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class TracesExtraMissing(NodeError):
    """Traces are configured, and OpenTelemetry is not installed."""

    reason = "TRACES_EXTRA_MISSING"


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces that run: the observer of sessions, and what notes the callers' traces."""

    observer: SessionTraces
    interceptor: CallerInterceptor
    export: TraceExport

    async def close(self) -> None:
        """Sends what waits, for a bounded time."""
        await asyncio.to_thread(self.export.close)


def start_traces(endpoint: str, resource: Mapping[str, str], metrics: NodeMetrics) -> Traces:
    """Sends spans to `endpoint` from now on; `resource` names the node in each of them.

    Imports OpenTelemetry, which most nodes do without. Raises `TracesExtraMissing`.
    """
    if not _is_installed():
        raise TracesExtraMissing(
            f"traces_endpoint is {endpoint!r}, and OpenTelemetry is not installed",
            "pip install 'kakeya-fleet[traces]', or leave traces_endpoint empty",
            key="traces_endpoint",
        )
    from kakeya_fleet.node.tracing.trace_export import TraceExport  # noqa: PLC0415 the extra's own module

    # It logs each try; the export itself says once that the collector refuses.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    export = TraceExport(traces_url(endpoint), resource, metrics)
    return Traces(SessionTraces(export.put, time.time_ns), CallerInterceptor(), export)


def traces_url(endpoint: str) -> str:
    """The whole URL; a collector's address alone gets the usual path."""
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{TRACES_PATH}"


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
