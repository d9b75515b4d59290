"""Metrics of what callers share of a node, by the names that `fleet limits` shows."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class AdmissionFamilies:
    """What is taken of each bound, and who found no place."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.admission_used = Gauge(
            "kakeya_admission_used",
            "What callers hold of a bound now, in its own unit.",
            ["limit"],
            registry=registry,
        )
        self.admission_limit = Gauge(
            "kakeya_admission_limit",
            "What they may hold of it together.",
            ["limit"],
            registry=registry,
        )
        self.admission_refused = Counter(
            "kakeya_admission_refused_total",
            "Requests for more of a bound that were refused: full, share (the caller holds more "
            "than others, of what is scarce).",
            ["limit", "reason"],
            registry=registry,
        )
        self.admission_reclaimed = Counter(
            "kakeya_admission_reclaimed_total",
            "Places of a bound that were taken back from callers who did not use them.",
            ["limit"],
            registry=registry,
        )
