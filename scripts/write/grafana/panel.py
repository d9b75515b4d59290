"""What a panel of the Grafana dashboard is, and the expressions that most of them are made of.

In an expression `@` stands for the selection of fleet and nodes, `$t` for the time that a
rate looks back. A legend names labels as Grafana does: {{node}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One expression and what its lines are called."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One chart; `unit` is Grafana's name of it, `most` the end of its axis, if it has one."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    most: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def quantiles(metric: str, shares: Sequence[int], by: str = "") -> tuple[Query, ...]:
    """Percentiles of a histogram, `by` a label beside."""
    kept, tail = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share / 100}, sum by ({kept}) (rate({metric}_bucket@[$t])))",
            f"p{share}{tail}",
        )
        for share in shares
    )


def rate(metric: str, *labels: str) -> Query:
    """What a counter gains a second, by labels."""
    names = labels or ("node",)
    legend = " ".join(f"{{{{{name}}}}}" for name in names)
    return Query(f"sum by ({', '.join(names)}) (rate({metric}@[$t]))", legend)


def now(metric: str, *labels: str, name: str = "") -> Query:
    """A gauge, by labels."""
    names = labels or ("node",)
    legend = " ".join(f"{{{{{each}}}}}" for each in names)
    return Query(f"sum by ({', '.join(names)}) ({metric}@)", f"{legend} {name}".strip())


def mean(metric: str, name: str) -> Query:
    """Mean of a histogram over the time that a rate looks back."""
    return Query(
        f"sum(rate({metric}_sum@[$t])) / sum(rate({metric}_count@[$t]))",
        name,
    )
