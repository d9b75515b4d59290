"""Metrics of the HTTP server."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import LONG_SECONDS


class HttpFamilies:
    """Requests by route; a path that is no route counts as "other"."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.http_requests = Counter(
            "kakeya_http_requests_total",
            "HTTP requests that were answered, by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.http_request_seconds = Histogram(
            "kakeya_http_request_seconds",
            "From an HTTP request's arrival to the end of its answer, by route.",
            ["route"],
            registry=registry,
            buckets=LONG_SECONDS,
        )
        self.http_streams_active = Gauge(
            "kakeya_http_streams_active",
            "HTTP answers that are being streamed.",
            registry=registry,
        )
