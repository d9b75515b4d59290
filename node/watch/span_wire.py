"""Spans as they leave the node."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya.v1 import capability_pb2
from kakeya_fleet.node.watch.span_ring import Span

# Of one answer: a request that took more has its latest ones told, in about 1 MiB.
MOST_TOLD = 2048


def spans_to_wire(
    node_id: str, node_name: str, spans: Sequence[Span]
) -> capability_pb2.GetSpansResponse:
    """What a node did for a request."""
    return capability_pb2.GetSpansResponse(
        node_id=node_id,
        node_name=node_name,
        spans=[_to_wire(span) for span in spans[-MOST_TOLD:]],
    )


def _to_wire(span: Span) -> capability_pb2.Span:
    return capability_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        name=span.name,
        started_at_unix=span.started_at_unix,
        duration_seconds=span.duration_seconds,
        request_id=span.request_id,
        fault=span.fault,
        attributes=[
            capability_pb2.SpanAttribute(name=name, value=value) for name, value in span.attributes
        ],
    )
