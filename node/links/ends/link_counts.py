"""What one end of a link has carried: for GetNode and the metrics."""

from __future__ import annotations

from collections import deque

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.chunks import TensorFault
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.metrics import NodeMetrics

_RECENT = 16


class _Transport:
    """The metrics of one transport: to look them up takes longer than to count."""

    def __init__(self, metrics: NodeMetrics, kind: RoadKind) -> None:
        byte_count = metrics.link_transport_bytes
        self.sent = byte_count.labels(transport=kind.value, way="sent")
        self.received = byte_count.labels(transport=kind.value, way="received")
        self.send_seconds = metrics.link_send_seconds.labels(transport=kind.value)


class LinkCounts:
    """Counts of one end."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics
        self._transports: dict[RoadKind, _Transport] = {}
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self.tensor_count = 0
        self.byte_count = 0

    @property
    def bytes_per_second(self) -> float:
        """Of the latest tensors that were sent or received; 0.0 before any was."""
        seconds = sum(each for _, each in self._recent)
        return sum(count for count, _ in self._recent) / seconds if seconds > 0 else 0.0

    def chunk_received(self, byte_count: int) -> None:
        """A chunk came, whether it is taken or not."""
        self._metrics.link_bytes.inc(byte_count)

    def sent(self, byte_count: int, seconds: float, kind: RoadKind) -> None:
        """A tensor arrived at the other end; `seconds` of them were its own."""
        self._add(byte_count, seconds)
        transport = self._transport(kind)
        transport.send_seconds.observe(seconds)
        transport.sent.inc(byte_count)

    def received(self, byte_count: int, seconds: float, kind: RoadKind, *, by_road: bool) -> None:
        """A tensor arrived here, `seconds` after its first bytes or its announcement."""
        self._add(byte_count, seconds)
        if by_road:
            self._metrics.link_bytes.inc(byte_count)
        self._transport(kind).received.inc(byte_count)

    def refused(self, fault: TensorFault) -> None:
        """A tensor was not taken."""
        self._metrics.tensors_refused.labels(fault=fault.value).inc()

    def opened(self, kind: RoadKind) -> None:
        """The link carries its first tensors by `kind`."""
        self._metrics.link_transports.labels(transport=kind.value).inc()

    def changed(self, before: RoadKind, after: RoadKind, cause: ChangeCause) -> None:
        """Another road carries the link."""
        self._metrics.link_transports.labels(transport=before.value).dec()
        self._metrics.link_transports.labels(transport=after.value).inc()
        self._metrics.link_changes.labels(to=after.value, cause=cause.value).inc()

    def closed(self, kind: RoadKind) -> None:
        """The link is over."""
        self._metrics.link_transports.labels(transport=kind.value).dec()

    def _transport(self, kind: RoadKind) -> _Transport:
        known = self._transports.get(kind)
        if known is None:
            known = self._transports[kind] = _Transport(self._metrics, kind)
        return known

    def _add(self, byte_count: int, seconds: float) -> None:
        self.tensor_count += 1
        self.byte_count += byte_count
        if byte_count and seconds > 0:
            self._recent.append((byte_count, seconds))
