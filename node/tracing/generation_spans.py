"""A generation as spans: where its seconds went."""

from __future__ import annotations

from collections.abc import Iterator

from kakeya_fleet.node.rpc.trace_context import TraceContext, new_span_id
from kakeya_fleet.node.tracing.traced import TracedGeneration
from kakeya_fleet.node.watch.span_ring import Attributes, Span

_NANO = 1e-9


def spans_of(traced: TracedGeneration) -> Iterator[Span]:
    """The generation and its prefills, below the call that asked for it; none without one."""
    context = TraceContext.parse(traced.traceparent)
    if context is None:
        return
    own = new_span_id()
    yield Span(
        trace_id=context.trace_id,
        span_id=own,
        parent_span_id=context.span_id,
        name="generation",
        started_at_unix=traced.start_ns * _NANO,
        duration_seconds=(traced.end_ns - traced.start_ns) * _NANO,
        attributes=_attributes(traced),
    )
    for prefill in traced.prefills:
        if prefill.start_ns < traced.start_ns:
            # Of an append, which has a span of its own.
            continue
        yield Span(
            trace_id=context.trace_id,
            span_id=new_span_id(),
            parent_span_id=own,
            name="prefill",
            started_at_unix=prefill.start_ns * _NANO,
            duration_seconds=(prefill.end_ns - prefill.start_ns) * _NANO,
            attributes=(("tokens", str(prefill.token_count)),),
        )


def _attributes(traced: TracedGeneration) -> Attributes:
    finished = traced.finished
    told = [("model", traced.session.model_id), ("tokens", str(traced.token_count))]
    if traced.first_token_ns:
        seconds = (traced.first_token_ns - traced.start_ns) * _NANO
        told.append(("first_token", f"{seconds:.3f} s"))
    told += [
        ("blocks", str(traced.block_count)),
        ("verify", f"{sum(block.verify_seconds for block in traced.blocks):.3f} s"),
        ("wait_for_drafts", f"{sum(block.wait_seconds for block in traced.blocks):.3f} s"),
    ]
    if finished is None:
        return (*told, ("end", "left"))
    told.append(("end", finished.done.stop_reason.value))
    if finished.queue_seconds:
        told.append(("queue", f"{finished.queue_seconds:.3f} s"))
    if finished.proposer is not None:
        told.append(("proposer", f"{finished.proposer.model_id}@{finished.proposer.node_name}"))
    if finished.done.speculation.hedge_count:
        told.append(("hedges", str(finished.done.speculation.hedge_count)))
    if finished.drop_reason is not None:
        told.append(("dropped", finished.drop_reason.value))
    return tuple(told)
