"""Spans of nodes whose clocks differ, on one time line."""

from __future__ import annotations

from kakeya import NodeSpans, Span
from kakeya_fleet.node.cli.trace.timeline import placed, total_seconds


def span(name: str, parent: str, began: float, seconds: float) -> Span:
    return Span("t" * 32, name, parent, name, began, seconds, "", "", ())


HOUR = 3600.0
GATEWAY = NodeSpans("g", "gateway", (span("post", "client", 100.0, 2.0),))
VERIFIER = NodeSpans(
    "v",
    "verifier",
    (
        span("create", "post", 100.1 + HOUR, 0.5),
        span("generate", "post", 100.7 + HOUR, 1.2),
        span("prefill", "generate", 100.8 + HOUR, 0.2),
    ),
)
PROPOSER = NodeSpans("p", "proposer", (span("draft", "generate", 3.0, 0.6),))


def test_parts_lie_within_what_asked_for_them_whatever_the_clocks_say() -> None:
    lines = placed([PROPOSER, VERIFIER, GATEWAY])
    assert [(line.span.name, line.depth) for line in lines] == [
        ("post", 0),
        ("create", 1),
        ("generate", 1),
        ("prefill", 2),
        ("draft", 2),
    ]
    at = {line.span.name: line.offset_seconds for line in lines}
    assert at["post"] == 0.0
    # On another node: together in the middle of what asked for them. On the same: by its clock.
    assert round(at["create"], 6) == 0.1
    assert round(at["generate"], 6) == 0.7
    assert round(at["prefill"], 6) == 0.8
    assert round(at["draft"], 6) == 1.0
    for line in lines:
        assert line.offset_seconds >= 0
        assert line.offset_seconds + line.span.duration_seconds <= total_seconds(lines) + 1e-9
    assert total_seconds(lines) == 2.0


def test_clocks_that_contradict_nothing_are_believed() -> None:
    """Or a refusal of the gateway's would stand behind what another node answered next."""
    refused = span("create", "post", 100.2, 0.1)
    answered = span("create again", "post", 100.4, 0.3)
    gateway = NodeSpans("g", "gateway", (*GATEWAY.spans, refused))
    lines = placed([NodeSpans("v", "verifier", (answered,)), gateway])
    assert [line.span.name for line in lines] == ["post", "create", "create again"]
    assert round(lines[-1].offset_seconds, 6) == 0.4


def test_parts_that_last_longer_than_what_asked_begin_with_it() -> None:
    late = NodeSpans("v", "verifier", (span("stream", "post", 100.5, 3.0),))
    (_, stream) = placed([GATEWAY, late])
    assert stream.offset_seconds == 0.0


def test_a_part_whose_asker_is_not_known_stands_by_itself() -> None:
    lines = placed([VERIFIER])
    assert [(line.span.name, line.depth) for line in lines] == [
        ("create", 0),
        ("generate", 0),
        ("prefill", 1),
    ]
    assert [round(line.offset_seconds, 6) for line in lines] == [0.0, 0.6, 0.7]


def test_spans_that_name_each_other_end() -> None:
    """As a node that lies might say: neither is the first, and neither is told."""
    mad = NodeSpans("m", "mad", (span("a", "b", 0.0, 1.0), span("b", "a", 0.0, 1.0)))
    own = NodeSpans("n", "self", (span("c", "c", 0.0, 1.0),))
    assert [line.span.name for line in placed([mad, own])] == ["c"]
