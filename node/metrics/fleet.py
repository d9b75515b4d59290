"""Metrics of membership: gossip, cards, liveness."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import SHORT_SECONDS


class FleetFamilies:
    """How this node and its peers hear of each other."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.gossip_exchanges = Counter(
            "kakeya_gossip_exchanges_total",
            "Exchanges with peers and probes of them, by result: ok, timeout, unreachable, "
            "refused, malformed, oversize.",
            ["result"],
            registry=registry,
        )
        self.gossip_round_trip_seconds = Histogram(
            "kakeya_gossip_round_trip_seconds",
            "Round trip of one exchange.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.cards_skipped = Counter(
            "kakeya_cards_skipped_total",
            "Cards of others that were not merged, by the rule that they broke.",
            ["rule"],
            registry=registry,
        )
        self.rumours_skipped = Counter(
            "kakeya_rumours_skipped_total",
            "Statements about liveness that were not merged, by the rule that they broke.",
            ["rule"],
            registry=registry,
        )
        self.members = Gauge(
            "kakeya_members",
            "Nodes of the fleet as known here, this one included, by liveness.",
            ["liveness"],
            registry=registry,
        )
        self.incarnation = Gauge(
            "kakeya_incarnation", "This node's incarnation.", registry=registry
        )
        self.event_loop_lag_seconds = Gauge(
            "kakeya_event_loop_lag_seconds",
            "How late the event loop ran its last gossip period.",
            registry=registry,
        )
        self.watchers_dropped = Counter(
            "kakeya_watchers_dropped_total",
            "Watchers of the fleet, the node or its sessions that were ended because they fell "
            "behind.",
            registry=registry,
        )
