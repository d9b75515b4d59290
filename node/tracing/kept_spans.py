"""What a node keeps of its requests, for whoever asks where their time went."""

from __future__ import annotations

import time

from kakeya_fleet.node.rpc.trace_context import outgoing_header
from kakeya_fleet.node.tracing.generation_spans import spans_of
from kakeya_fleet.node.tracing.session_traces import SessionTraces
from kakeya_fleet.node.tracing.span_interceptor import SpanInterceptor
from kakeya_fleet.node.tracing.traced import TracedGeneration
from kakeya_fleet.node.watch.span_ring import SpanRing


class KeptSpans:
    """What fills the ring: calls and generations. HTTP and archives add their own."""

    def __init__(self, ring: SpanRing) -> None:
        self.ring = ring
        self.interceptor = SpanInterceptor(ring)
        self.observer = SessionTraces(self._put, time.time_ns, outgoing_header)

    def _put(self, traced: TracedGeneration) -> None:
        self.ring.add(spans_of(traced))
