"""Metrics of tensor links."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import SHORT_SECONDS


class LinkFamilies:
    """What links carry, by what, and when and why that changed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.links_active = Gauge(
            "kakeya_links_active", "Tensor links that are served.", registry=registry
        )
        self.links_opened = Counter(
            "kakeya_links_opened_total", "Tensor links that were opened.", registry=registry
        )
        self.link_bytes = Counter(
            "kakeya_link_bytes_total", "Bytes of tensors that arrived on links.", registry=registry
        )
        self.tensors_refused = Counter(
            "kakeya_tensors_refused_total",
            "Tensors that arrived on links and were not taken, by fault: corrupt, not_finite, "
            "wrong_shape, out_of_order.",
            ["fault"],
            registry=registry,
        )
        self._transports(registry)

    def _transports(self, registry: CollectorRegistry) -> None:
        self.link_transports = Gauge(
            "kakeya_link_transports",
            "Ends of tensor links that are open here, by what carries their tensors now: grpc, "
            "local, ring.",
            ["transport"],
            registry=registry,
        )
        self.link_changes = Counter(
            "kakeya_link_changes_total",
            "Changes of what carries a tensor link, by what carries it then and by cause: "
            "faster, forced, peer, slower, fault, idle.",
            ["to", "cause"],
            registry=registry,
        )
        self.link_transport_bytes = Counter(
            "kakeya_link_transport_bytes_total",
            "Bytes of tensors on links, by what carried them and by way: sent, received.",
            ["transport", "way"],
            registry=registry,
        )
        self.link_send_seconds = Histogram(
            "kakeya_link_send_seconds",
            "From a tensor's departure until its receiver said that it has it, by what carried it.",
            ["transport"],
            registry=registry,
            buckets=SHORT_SECONDS,
        )
