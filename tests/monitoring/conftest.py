"""What the monitoring files may name: the metrics of a node."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client.metrics import MetricWrapperBase

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.metrics.tallied_histogram import TalliedHistogram
from scripts.write import grafana_dashboard

# A metric, and all that a selector in braces behind it says.
_METRIC = re.compile(r"\b(kakeya_[a-z0-9_]+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!=|!~|=)")
# Labels that come with the target, or with a histogram.
TARGET_LABELS = frozenset({"fleet", "node", "roles", "instance", "job"})


@dataclass
class Family:
    """One metric: what its samples are called, and its own labels."""

    name: str
    samples: frozenset[str]
    labels: frozenset[str]


@dataclass
class Expression:
    """What one PromQL expression names."""

    text: str
    metrics: frozenset[str]
    labels: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, text: str) -> Expression:
        found = _METRIC.findall(text)
        labels = {name for _, selector in found for name in _MATCHER.findall(selector)}
        for names in _BY.findall(text):
            labels |= {name.strip() for name in names.split(",")}
        return cls(text, frozenset(name for name, _ in found), frozenset(labels))


ParseExpression = Callable[[str], Expression]
FindFamily = Callable[[str], Family | None]
FindMistakes = Callable[[Expression], list[str]]


def _families(metrics: NodeMetrics) -> Iterator[Family]:
    for wrapper in vars(metrics).values():
        if not isinstance(wrapper, MetricWrapperBase | TalliedHistogram):
            continue
        [described] = wrapper.describe()
        name, labels = described.name, frozenset(getattr(wrapper, "_labelnames", ()))
        endings = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
        samples = frozenset(name + ending for ending in endings[described.type])
        if described.type == "histogram":
            labels |= {"le"}
        yield Family(name, samples, labels)


@pytest.fixture(scope="session")
def families() -> list[Family]:
    """All metrics that a node registers."""
    return list(_families(NodeMetrics()))


@pytest.fixture(scope="session")
def family_of(families: list[Family]) -> FindFamily:
    """The family of a sample's name; None for a name that no node has."""
    by_sample = {sample: family for family in families for sample in family.samples}
    return by_sample.get


@pytest.fixture(scope="session")
def expression() -> ParseExpression:
    """Parses what a PromQL expression names."""
    return Expression.of


@pytest.fixture(scope="session")
def mistakes(family_of: FindFamily) -> FindMistakes:
    """What an expression names that no node has: metrics, or labels of its metrics."""

    def find(found: Expression) -> list[str]:
        unknown = [name for name in found.metrics if family_of(name) is None]
        allowed = TARGET_LABELS.union(
            *(family.labels for name in found.metrics if (family := family_of(name)))
        )
        return unknown + sorted(found.labels - allowed)

    return find


@pytest.fixture(scope="session")
def written_dashboard() -> str:
    """The dashboard as its script writes it now."""
    return grafana_dashboard.text()
