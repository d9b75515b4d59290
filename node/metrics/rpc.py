"""Metrics of calls, and of the process that answers them."""

from __future__ import annotations

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import STALL_SECONDS


class RpcFamilies:
    """Calls that failed, what the process takes and stalls, and traces that were not sent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rpc_errors = Counter(
            "kakeya_rpc_errors_total",
            "Calls that ended with an error, by its reason.",
            ["reason"],
            registry=registry,
        )
        self.background_faults = Counter(
            "kakeya_background_faults_total",
            "Faults of what the node does besides calls, by the task and the error's type. It "
            "begins again by itself.",
            ["task", "error"],
            registry=registry,
        )
        self.loop_stall_seconds = Histogram(
            "kakeya_event_loop_stall_seconds",
            "Turns of the event loop of more than 0.1 s, in which nothing else was answered: "
            "computing, waiting (for a file, a lock, another thread), machine (no core was free).",
            ["cause"],
            buckets=STALL_SECONDS,
            registry=registry,
        )
        self.connections_ended = Counter(
            "kakeya_connections_ended_total",
            "Connections of others that were ended to keep descriptors free for the node.",
            registry=registry,
        )
        self.resident_bytes = Gauge(
            "kakeya_process_resident_bytes",
            "Memory of the node's process that is in use.",
            registry=registry,
        )
        process = psutil.Process()
        self.resident_bytes.set_function(lambda: process.memory_info().rss)
        self.spans = Counter(
            "kakeya_trace_spans_total",
            "Spans that ended, by what became of them: sent, dropped: the collector did not take "
            "them, or too many waited for it.",
            ["fate"],
            registry=registry,
        )
