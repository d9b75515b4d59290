"""Writes a generation as spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kakeya_fleet.engine.speculation.generation_report import TIMELINE_BLOCKS, BlockTiming
from kakeya_fleet.node.tracing.caller import HEADER
from kakeya_fleet.node.tracing.traced import TracedGeneration, TracedPrefill

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

# The first token, and each change of a link beside the blocks.
_MOST_EVENTS = TIMELINE_BLOCKS + 64


class _Collected(SpanProcessor):
    """Keeps spans that ended until they are taken."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class SpanWriter:
    """Makes spans; used by one thread.

    Whether a generation is written follows the sampling flag of its caller, or
    OpenTelemetry's own OTEL_TRACES_SAMPLER.
    """

    def __init__(self, resource: Mapping[str, str]) -> None:
        provider = TracerProvider(
            resource=Resource.create(dict(resource)),
            span_limits=SpanLimits(max_events=_MOST_EVENTS),
            shutdown_on_exit=False,
        )
        self._collected = _Collected()
        provider.add_span_processor(self._collected)
        self._tracer = provider.get_tracer("kakeya.node")
        self._propagator = TraceContextTextMapPropagator()

    def write(self, traced: TracedGeneration) -> list[ReadableSpan]:
        """The spans of a generation, children first; none when it is not sampled."""
        finished = traced.finished
        start_ns = traced.start_ns
        if finished is not None:
            start_ns -= int(finished.queue_seconds * 1e9)
        span = self._tracer.start_span(
            "generation",
            context=self._caller(traced.traceparent),
            kind=SpanKind.SERVER,
            attributes=dict(_attributes(traced)),
            start_time=start_ns,
        )
        within = set_span_in_context(span)
        for prefill in traced.prefills:
            self._prefill(prefill, within)
        if traced.first_token_ns:
            span.add_event("first_token", timestamp=traced.first_token_ns)
        for block in traced.blocks:
            at = traced.start_ns + int(block.start_seconds * 1e9)
            span.add_event("block", _block_attributes(block), timestamp=at)
        span.end(traced.end_ns)
        spans, self._collected.spans = self._collected.spans, []
        return spans

    def _caller(self, traceparent: str) -> Context:
        return self._propagator.extract({HEADER: traceparent} if traceparent else {})

    def _prefill(self, prefill: TracedPrefill, within: Context) -> None:
        span = self._tracer.start_span(
            "prefill",
            context=within,
            attributes={
                "kakeya.prefill.tokens": prefill.token_count,
                "kakeya.prefill.seconds": prefill.seconds,
            },
            start_time=prefill.start_ns,
        )
        span.end(prefill.end_ns)


def _attributes(traced: TracedGeneration) -> Iterator[tuple[str, AttributeValue]]:
    session, finished = traced.session, traced.finished
    yield "gen_ai.operation.name", "text_completion"
    yield "gen_ai.request.model", session.model_id
    yield "gen_ai.usage.output_tokens", traced.token_count
    yield "kakeya.session_id", session.session_id
    yield "kakeya.kv_strategy", session.kv_strategy
    if session.restorer:
        yield "kakeya.restorer", session.restorer
    yield "kakeya.blocks", traced.block_count
    if finished is None:
        yield "kakeya.end", "left"
        return
    done = finished.done
    yield "kakeya.end", done.stop_reason.value
    yield "gen_ai.response.finish_reasons", (done.stop_reason.value,)
    yield "kakeya.history_tokens", done.history_length
    yield "kakeya.queue_seconds", finished.queue_seconds
    yield "kakeya.acceptance_length", done.speculation.acceptance_length
    yield "kakeya.drafted_tokens", done.speculation.drafted_count
    yield "kakeya.accepted_tokens", done.speculation.accepted_count
    yield "kakeya.verify_forwards", done.speculation.verify_forward_count
    yield "kakeya.restorer_rebuilds", finished.restorer_rebuild_count
    if finished.proposer is not None:
        yield "kakeya.proposer.model", finished.proposer.model_id
        yield "kakeya.proposer.node_id", finished.proposer.node_id
    if finished.drop_reason is not None:
        yield "kakeya.drop_reason", finished.drop_reason.value
    if finished.link_changes:
        yield "kakeya.link_changes", tuple(change.reason for change in finished.link_changes)


def _block_attributes(block: BlockTiming) -> dict[str, AttributeValue]:
    return {
        "first_index": block.first_index,
        "drafted": block.drafted_count,
        "accepted": block.accepted_count,
        "committed": block.committed_count,
        "drafted_ahead": block.drafted_ahead,
        "draft_seconds": block.draft_seconds,
        "wire_seconds": block.wire_seconds,
        "wait_seconds": block.wait_seconds,
        "verify_seconds": block.verify_seconds,
    }
