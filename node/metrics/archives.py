"""Metrics of archives, and of sessions that have what they evicted in one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import SHORT_SECONDS


class ArchiveFamilies:
    """What this node's archive keeps, and what its own sessions wait for and lose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.archives_open = Gauge(
            "kakeya_archives_open", "Archives that sessions have open here.", registry=registry
        )
        self.archive_bytes = Gauge(
            "kakeya_archive_bytes", "Bytes that archives take here.", registry=registry
        )
        self.archive_budget_bytes = Gauge(
            "kakeya_archive_budget_bytes",
            "Bytes that archives may take here together.",
            registry=registry,
        )
        self.archive_positions = Gauge(
            "kakeya_archive_positions", "Evicted positions kept here.", registry=registry
        )
        self.archive_saved_bytes = Gauge(
            "kakeya_archive_saved_bytes",
            "Bytes that evicted positions would take here besides if they were not packed.",
            registry=registry,
        )
        self.archive_query_seconds = Histogram(
            "kakeya_archive_query_seconds",
            "Attention of a block's queries in one layer, where the archive is.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self._restoring(registry)

    def _restoring(self, registry: CollectorRegistry) -> None:
        self.restorer_round_trip_seconds = Histogram(
            "kakeya_restorer_round_trip_seconds",
            "A layer's wait for its partial attention, as the verifier sees it.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.restorer_faults = Counter(
            "kakeya_restorer_faults_total",
            "Archives that sessions lost, by kind: unreachable, deadline, full, gone, refused, "
            "not_finite, impossible, protocol, corrupt, mismatched, altered, false_answer.",
            ["kind"],
            registry=registry,
        )
        self.restorer_audits = Counter(
            "kakeya_restorer_audits_total",
            "Answers of archives that were computed again, by outcome: passed, rounded, "
            "failed, no_room.",
            ["outcome"],
            registry=registry,
        )
        self.restorer_rebuilds = Counter(
            "kakeya_restorer_rebuilds_total",
            "Archives made anew for a session, by outcome: rebuilt, lost.",
            ["outcome"],
            registry=registry,
        )
