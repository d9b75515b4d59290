"""Spans of several nodes on one time line, though their clocks differ.

A span is placed by the one that it is a part of: by the clock that both have where they are of one
node. Parts on another node keep their order and distances, and lie within what asked for them: a
clock that places them there is believed; any other is moved, so that there is as much time before
the first part as behind the last, since the way there and the way back are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kakeya import NodeSpans, Span


@dataclass(frozen=True, slots=True)
class Placed:
    """A span on the time line: `offset_seconds` after its first begin, `depth` below it."""

    span: Span
    node_id: str
    node_name: str
    offset_seconds: float
    depth: int


@dataclass(frozen=True, slots=True)
class _Known:
    span: Span
    node: NodeSpans


def placed(nodes: Iterable[NodeSpans]) -> list[Placed]:
    """All spans, each behind what it is a part of, parts by their begin.

    Those whose first one nobody knows, as of a client's own span, stand side by side; on one
    node by its clock, on several each from 0.
    """
    known = {each.span.span_id: each for each in _all(nodes)}
    children: dict[str, list[_Known]] = {}
    roots: list[_Known] = []
    for each in known.values():
        parent = each.span.parent_span_id
        if parent in known and parent != each.span.span_id:
            children.setdefault(parent, []).append(each)
        else:
            roots.append(each)
    first = {
        node_id: min(each.span.started_at_unix for each in roots if each.node.node_id == node_id)
        for node_id in {each.node.node_id for each in roots}
    }
    lines: list[Placed] = []
    for root in sorted(roots, key=lambda each: each.span.started_at_unix):
        offset = root.span.started_at_unix - first[root.node.node_id]
        lines += _below(root, offset, 0, children)
    return lines


def _all(nodes: Iterable[NodeSpans]) -> Iterator[_Known]:
    for node in nodes:
        for span in node.spans:
            yield _Known(span, node)


def _below(
    at: _Known, offset: float, depth: int, children: dict[str, list[_Known]]
) -> Iterator[Placed]:
    yield Placed(at.span, at.node.node_id, at.node.node_name, offset, depth)
    parts = children.pop(at.span.span_id, [])
    by_node: dict[str, list[_Known]] = {}
    for part in parts:
        by_node.setdefault(part.node.node_id, []).append(part)
    ahead = {
        node_id: 0.0 if node_id == at.node.node_id else _ahead(at.span, [each.span for each in own])
        for node_id, own in by_node.items()
    }

    def begin(part: _Known) -> float:
        return part.span.started_at_unix - ahead[part.node.node_id]

    for part in sorted(parts, key=begin):
        yield from _below(part, offset + begin(part) - at.span.started_at_unix, depth + 1, children)


def _ahead(parent: Span, parts: Sequence[Span]) -> float:
    """Seconds that the clock of these parts' node is taken to be ahead of the parent's.

    Parts that cannot lie within it begin with it at the earliest.
    """
    most = min(each.started_at_unix for each in parts) - parent.started_at_unix
    ends = max(each.started_at_unix + each.duration_seconds for each in parts)
    least = min(most, ends - (parent.started_at_unix + parent.duration_seconds))
    return 0.0 if least <= 0.0 <= most else (least + most) / 2


def total_seconds(lines: Sequence[Placed]) -> float:
    """From the first begin to the last end."""
    return max((line.offset_seconds + line.span.duration_seconds for line in lines), default=0.0)
