"""The latest spans of a node: what it did for requests, in names, times and counts.

Never a token or text. Works without a collector: `fleet trace` asks each node for its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

# A span takes about 1 KiB, so that all of them take 4 MiB; those of a busy minute.
KEPT_SPANS = 4096
MAX_REQUEST_CHARACTERS = 128
"""Of a request's id and of each value: callers say some of them, of any length."""
_TRACE_ID = re.compile("[0-9a-f]{32}")

Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Work that was done for a request; see `Span` of capability.proto."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    started_at_unix: float
    duration_seconds: float
    request_id: str = ""
    fault: str = ""
    attributes: Attributes = ()


class SpanRing:
    """The oldest ones make room for new ones. Any thread may add."""

    def __init__(self, kept: int = KEPT_SPANS) -> None:
        self._spans: deque[Span] = deque(maxlen=kept)

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, spans: Iterable[Span]) -> None:
        """Keeps spans that ended, of their texts the first `MAX_REQUEST_CHARACTERS`."""
        self._spans.extend(map(_cut, spans))

    def of(self, request: str) -> list[Span]:
        """All spans of the traces that `request` names, by their id or a request id."""
        spans = list(self._spans)
        traces = {request} if _TRACE_ID.fullmatch(request) else set()
        traces |= {span.trace_id for span in spans if request and span.request_id == request}
        found = [span for span in spans if span.trace_id in traces]
        return sorted(found, key=lambda span: span.started_at_unix)


def _cut(span: Span) -> Span:
    most = MAX_REQUEST_CHARACTERS
    attributes = tuple((name, value[:most]) for name, value in span.attributes)
    return replace(span, request_id=span.request_id[:most], attributes=attributes)
