"""What a node keeps of its requests: the latest spans, found by trace or by request id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_fleet.node.rpc.trace_context import TraceContext, outgoing, working_for
from kakeya_fleet.node.watch.span_ring import MAX_REQUEST_CHARACTERS, Span, SpanRing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = Span(TRACE, "00f067aa0ba902b7", "", "call", 10.0, 1.0)


def test_a_request_is_found_by_its_trace_and_by_each_id_that_a_call_of_it_had() -> None:
    ring = SpanRing()
    other = replace(SPAN, trace_id="f" * 32, request_id="theirs")
    part = replace(SPAN, span_id="1" * 16, started_at_unix=9.0)
    ring.add([replace(SPAN, request_id="mine"), other, part])
    for asked in (TRACE, "mine"):
        assert [span.started_at_unix for span in ring.of(asked)] == [9.0, 10.0]
    assert ring.of("theirs") == [other]
    assert ring.of("") == ring.of("nobody's") == []


def test_it_holds_so_many_and_no_more() -> None:
    ring = SpanRing(kept=10)
    ring.add(replace(SPAN, trace_id=f"{number:032x}") for number in range(1, 31))
    assert len(ring) == 10
    assert not ring.of(f"{20:032x}")
    assert ring.of(f"{21:032x}")


def test_of_long_texts_it_keeps_the_beginning() -> None:
    ring = SpanRing()
    ring.add([replace(SPAN, request_id="r" * 1000, attributes=(("session", "s" * 1000),))])
    (kept,) = ring.of("r" * MAX_REQUEST_CHARACTERS)
    assert kept.attributes == (("session", "s" * MAX_REQUEST_CHARACTERS),)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        f"00-{TRACE}-" + "0" * 16 + "-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7",
        f"00-{TRACE}-00f067aa0ba902b7-01" + "x" * 300,
    ],
)
def test_what_is_no_header_begins_no_trace(header: str) -> None:
    assert TraceContext.parse(header) is None


def test_what_a_task_asks_of_others_is_part_of_its_own_work() -> None:
    assert outgoing() == ()
    theirs = TraceContext.parse(f"00-{TRACE}-00f067aa0ba902b7-01")
    assert theirs is not None
    own = theirs.child()
    token = working_for.set(own)
    try:
        assert outgoing() == (("traceparent", f"00-{TRACE}-{own.span_id}-01"),)
    finally:
        working_for.reset(token)
    assert own.span_id != theirs.span_id
