"""Sends traces to a collector, in a thread of its own, behind a bounded queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.tracing.span_writer import SpanWriter
from kakeya_fleet.node.tracing.traced import TracedGeneration

# A generation keeps 256 blocks, some 50 KB: 25 MB at most while the collector is away.
MOST_WAITING = 512
# Generations of one request to the collector.
MOST_A_BATCH = 64
# Longest try for one batch; the exporter repeats within it what may pass.
EXPORT_SECONDS = 5.0
# At the node's end, for what still waits.
CLOSE_SECONDS = 2.0

_log = structlog.get_logger(__name__)


class TraceExport:
    """Takes generations and never waits: what finds no room, or no collector, is dropped."""

    def __init__(self, endpoint: str, resource: Mapping[str, str], metrics: NodeMetrics) -> None:
        """`endpoint` is the whole URL of an OTLP collector's traces, over HTTP."""
        self._endpoint = endpoint
        self._writer = SpanWriter(resource)
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)
        self._sent = metrics.spans.labels(fate="sent")
        self._dropped = metrics.spans.labels(fate="dropped")
        self._waiting: queue.Queue[TracedGeneration] = queue.Queue(MOST_WAITING)
        self._is_closed = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, traced: TracedGeneration) -> None:
        """Hands over a generation; its spans are counted as dropped when the queue is full."""
        try:
            self._waiting.put_nowait(traced)
        except queue.Full:
            self._dropped.inc(1 + len(traced.prefills))

    def close(self) -> None:
        """Sends what waits, for `CLOSE_SECONDS` at most. Blocks: not for an event loop."""
        self._is_closed.set()
        self._thread.join(CLOSE_SECONDS)
        # Ends the pauses between the exporter's tries.
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own

    def _run(self) -> None:
        while batch := self._batch():
            spans = [span for traced in batch for span in self._writer.write(traced)]
            if spans:
                self._send(spans)

    def _batch(self) -> list[TracedGeneration]:
        """What waits, at least one; nothing at the end."""
        batch: list[TracedGeneration] = []
        while len(batch) < MOST_A_BATCH:
            try:
                # A queue cannot be closed: it is looked up from time to time whether this is.
                batch.append(self._waiting.get(block=not batch, timeout=0.1))
            except queue.Empty:
                if batch or self._is_closed.is_set():
                    break
        return batch

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        failed = self._exporter.export(spans) is not SpanExportResult.SUCCESS
        (self._dropped if failed else self._sent).inc(len(spans))
        if failed and not self._is_failing:
            _log.warning("traces_refused", endpoint=self._endpoint, dropped=len(spans))
        if self._is_failing and not failed:
            _log.info("traces_accepted", endpoint=self._endpoint)
        self._is_failing = failed
