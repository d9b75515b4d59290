"""A histogram for what happens with every token."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class TalliedHistogram(Collector):
    """One thread adds to it, and several equal values at once: a fifth of the usual cost.

    Any thread may collect it.
    """

    def __init__(
        self, name: str, text: str, *, registry: CollectorRegistry, buckets: Sequence[float]
    ) -> None:
        """`buckets` are the upper bounds, ascending; the last one, infinity, is added."""
        self._name = name
        self._text = text
        self._bounds = tuple(buckets)
        self._labels = [*map(floatToGoString, buckets), "+Inf"]
        self._counts = [0] * len(self._labels)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float, count: int = 1) -> None:
        """Adds `value`, `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Its name and text, without a sample."""
        yield HistogramMetricFamily(self._name, self._text)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Its samples of now."""
        total, buckets = 0, []
        for label, count in zip(self._labels, tuple(self._counts), strict=True):
            total += count
            buckets.append((label, total))
        family = HistogramMetricFamily(self._name, self._text)
        family.add_metric([], buckets, self._sum)
        yield family
