"""Metrics of what computes: the machine's cores, this process on them, the accelerator."""

from __future__ import annotations

import math
import time

from prometheus_client import CollectorRegistry, Counter, Gauge


class MachineFamilies:
    """How busy the machine is, as of the node's latest sample; NaN while that is not known."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cpu_used_ratio = _ratio(
            registry,
            "kakeya_cpu_used_ratio",
            "Share of the cores that the node may run on which programs of the machine kept busy "
            "in its latest second.",
        )
        self.process_cpu_used_ratio = _ratio(
            registry,
            "kakeya_process_cpu_used_ratio",
            "Share of the same cores that the node's process had in that second.",
        )
        self.accelerator_used_ratio = _ratio(
            registry,
            "kakeya_accelerator_used_ratio",
            "Share of the time in which the accelerator had work of any program.",
        )
        self.process_cpu_seconds = Counter(
            "kakeya_process_cpu_seconds_total",
            "Seconds of cores that the node's process had, in all its threads.",
            registry=registry,
        )
        self._counted_seconds = 0.0

    def tell_use(self, cpu: float | None, process: float | None, accelerator: float | None) -> None:
        """The shares of the second that ends now, 0 to 1; None for what is not known."""
        for gauge, share in (
            (self.cpu_used_ratio, cpu),
            (self.process_cpu_used_ratio, process),
            (self.accelerator_used_ratio, accelerator),
        ):
            gauge.set(math.nan if share is None else share)
        seconds = time.process_time()
        self.process_cpu_seconds.inc(seconds - self._counted_seconds)
        self._counted_seconds = seconds


def _ratio(registry: CollectorRegistry, name: str, text: str) -> Gauge:
    gauge = Gauge(name, text, registry=registry)
    # A gauge begins at 0, which nobody has measured.
    gauge.set(math.nan)
    return gauge
