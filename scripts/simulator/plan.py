"""Which runs a report is made of, and what its criteria are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.simulator import scenarios
from scripts.simulator.measures import nearest_rank
from scripts.simulator.storms import STORMS, storm

LOSS = 0.3
HOURS_NODES = 50
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One run: a process of the pool computes it, and its row follows from the arguments."""

    kind: str
    arguments: Mapping[str, Any]
    run: Callable[..., Row]

    def __call__(self) -> Row:
        """The arguments with what was found."""
        return {"kind": self.kind, **self.arguments, **self.run(**self.arguments)}


@dataclass(frozen=True)
class News:
    """Card changes that are followed: `seeds` fleets of `node_count`, `count` in each."""

    node_count: int
    loss: float
    seeds: int
    count: int


@dataclass(frozen=True)
class Plan:
    """The sizes of a report."""

    news: Sequence[News]
    deaths: Mapping[int, int]
    idle: Sequence[int]
    memory: Sequence[int]
    hours: float
    hours_runs: int
    storm_seeds: int
    storm_seconds: float


FULL = Plan(
    news=(
        News(50, 0.0, 20, 10),
        News(50, LOSS, 10, 10),
        News(1_000, 0.0, 10, 10),
        News(1_000, LOSS, 10, 1),
        News(10_000, 0.0, 4, 5),
        News(10_000, LOSS, 1, 1),
    ),
    deaths={2: 40, 50: 20, 1_000: 4},
    idle=(2, 50, 1_000, 10_000),
    memory=(50, 1_000, 10_000),
    hours=10.0,
    hours_runs=10,
    storm_seeds=10,
    storm_seconds=600.0,
)
SHORT = Plan(
    news=(News(20, 0.0, 2, 2), News(20, LOSS, 2, 1)),
    deaths={2: 2, 10: 2},
    idle=(2, 20),
    memory=(20,),
    hours=0.01,
    hours_runs=1,
    storm_seeds=1,
    storm_seconds=30.0,
)


def jobs(plan: Plan) -> list[Job]:
    """The longest first, so that no process is left alone with one."""
    found = [
        Job(
            "news",
            {"node_count": each.node_count, "loss": each.loss, "seed": seed, "count": each.count},
            scenarios.news,
        )
        for each in reversed(plan.news)
        for seed in range(each.seeds)
    ]
    hours = plan.hours / plan.hours_runs
    found += [
        Job(
            "hours of loss",
            {"node_count": HOURS_NODES, "loss": LOSS, "seed": seed, "hours": hours},
            scenarios.hours_of_loss,
        )
        for seed in range(plan.hours_runs)
    ]
    found += [
        Job("death", {"node_count": node_count, "seed": seed}, scenarios.death)
        for node_count, seeds in sorted(plan.deaths.items(), reverse=True)
        for seed in range(seeds)
    ]
    found += [Job("idle", {"node_count": count, "seed": 0}, scenarios.idle) for count in plan.idle]
    found += [Job("memory", {"node_count": count}, scenarios.memory) for count in plan.memory]
    found += [
        Job("storm", {"name": name, "seed": seed, "seconds": plan.storm_seconds}, storm)
        for name in STORMS
        for seed in range(plan.storm_seeds)
    ]
    return found


def bound(node_count: int, loss: float) -> float:
    """Rounds to everybody, p99: log2 N + 4 without loss, 1.4 log2 N + 5 at 30 % loss."""
    slope, offset = (1.4, 5.0) if loss else (1.0, 4.0)
    return slope * math.log2(node_count) + offset


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of a report, by kind, with whether each criterion is kept."""
    return {
        "news": [_news(part) for part in _parts(rows, "news", ("node_count", "loss"))],
        "deaths": [_deaths(part) for part in _parts(rows, "death", ("node_count",))],
        "idle": [dict(row) for row in rows if row["kind"] == "idle"],
        "memory": [dict(row) for row in rows if row["kind"] == "memory"],
        "hours_of_loss": [_hours(part) for part in _parts(rows, "hours of loss", ())],
        "storms": [_storm(part) for part in _parts(rows, "storm", ("name",))],
    }


def _parts(rows: Sequence[Row], kind: str, keys: Sequence[str]) -> list[list[Row]]:
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] == kind:
            parts.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [parts[key] for key in sorted(parts)]


def _news(part: Sequence[Row]) -> dict[str, Any]:
    """News that was not everywhere in the limit counts as endless."""
    held = _flat(part, "rounds_held")
    equal = [rounds for rounds in _flat(part, "rounds_equal_roots") if rounds < math.inf]
    most = bound(part[0]["node_count"], part[0]["loss"])
    p99 = nearest_rank(held, 0.99)
    return {
        "node_count": part[0]["node_count"],
        "loss": part[0]["loss"],
        "samples": len(held),
        "rounds_p50": _finite(nearest_rank(held, 0.5)),
        "rounds_p99": _finite(p99),
        "bound": round(most, 2),
        "kept": p99 <= most,
        "equal_roots": len(equal),
        "equal_roots_p50": nearest_rank(equal, 0.5) if equal else None,
        "equal_roots_p99": nearest_rank(equal, 0.99) if equal else None,
        "bytes_a_second_a_node": _mean(part, "bytes_a_second_a_node"),
        "false_deaths": sum(row["false_deaths"] for row in part),
    }


def _deaths(part: Sequence[Row]) -> dict[str, Any]:
    first = [_number(row["first_seconds"]) for row in part]
    everyone = [_number(row["everyone_seconds"]) for row in part]
    return {
        "node_count": part[0]["node_count"],
        "samples": len(part),
        "first_seconds_p50": _finite(nearest_rank(first, 0.5)),
        "first_seconds_max": _finite(max(first)),
        "everyone_seconds_p50": _finite(nearest_rank(everyone, 0.5)),
        "everyone_seconds_max": _finite(max(everyone)),
        "false_deaths": sum(row["false_deaths"] for row in part),
    }


def _hours(part: Sequence[Row]) -> dict[str, Any]:
    count = sum(row["false_deaths"] for row in part)
    return {
        "node_count": part[0]["node_count"],
        "loss": part[0]["loss"],
        "hours": round(sum(row["hours"] for row in part), 2),
        "runs": len(part),
        "false_deaths": count,
        "refutations_a_node_an_hour": _mean(part, "refutations_a_node_an_hour"),
        "bytes_a_second_a_node": _mean(part, "bytes_a_second_a_node"),
        "kept": count == 0,
    }


def _storm(part: Sequence[Row]) -> dict[str, Any]:
    return {
        "name": part[0]["name"],
        "samples": len(part),
        "kept": sum(row["kept"] for row in part),
        "missed_seeds": [row["seed"] for row in part if not row["kept"]],
        "false_deaths": sum(row.get("false_deaths", 0) for row in part),
    }


def _flat(part: Sequence[Row], field: str) -> list[float]:
    return [_number(value) for row in part for value in row[field]]


def _mean(part: Sequence[Row], field: str) -> float:
    values: list[float] = [row[field] for row in part]
    return round(sum(values) / len(values), 1)


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _finite(value: float) -> float | None:
    return value if value < math.inf else None
