"""What happened in one bucket of a soak: turns, their seconds, failures by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.bench.machine import percentile

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(slots=True)
class Tally:
    """Counts since the bucket began; `turn_seconds` in the order of their ends.

    A turn is an append and the whole answer to it. An answer that was left in its middle
    is counted as cancelled, and its seconds are not a turn's.
    """

    turn_seconds: list[float] = field(default_factory=list)
    turns_by_kind: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    appended: int = 0
    generated: int = 0
    cancelled: int = 0
    forked: int = 0
    opened: int = 0
    closed: int = 0

    def turn(self, kind: str, appended: int, generated: int, seconds: float) -> None:
        """Adds one whole turn of a session of `kind`."""
        self.turn_seconds.append(seconds)
        self.turns_by_kind[kind] += 1
        self.appended += appended
        self.generated += generated

    def summary(self, seconds: float) -> dict[str, object]:
        """For JSON; `seconds` is how long the bucket was."""
        told: dict[str, object] = {
            "seconds": seconds,
            "turns": len(self.turn_seconds),
            "turns_by_kind": dict(sorted(self.turns_by_kind.items())),
            "failures": dict(sorted(self.failures.items())),
            "cancelled": self.cancelled,
            "forked": self.forked,
            "sessions_opened": self.opened,
            "sessions_closed": self.closed,
            "tokens_appended": self.appended,
            "tokens_generated": self.generated,
            "generated_tokens_per_second": self.generated / seconds,
        }
        if self.turn_seconds:
            for name, share in PERCENTILES.items():
                told[f"turn_seconds_{name}"] = percentile(self.turn_seconds, share)
            told["generated_tokens_per_second_of_turns"] = self.generated / sum(self.turn_seconds)
        return told


def totals(sittings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all buckets of all sittings: how long, how much, and what failed."""
    lasted = [_sum(sitting, "seconds") for sitting in sittings]
    buckets = [bucket for sitting in sittings for bucket in _buckets(sitting)]
    failures: Counter[str] = Counter()
    for bucket in buckets:
        failures.update(bucket["failures"])
    counted = ("turns", "cancelled", "forked", "sessions_opened", "tokens_generated")
    return {
        "sittings": len(sittings),
        "hours": sum(lasted) / 3600.0,
        "longest_sitting_hours": max(lasted) / 3600.0,
        **{name: sum(_sum(sitting, name) for sitting in sittings) for name in counted},
        "failures": dict(sorted(failures.items())),
        "probes": sum(int(bucket["probe"]["answers"]) for bucket in buckets),
        "probes_that_differed": sum(len(bucket["probe"]["differed"]) for bucket in buckets),
        "last_over_first_bucket": [_drift(_buckets(sitting)) for sitting in sittings],
    }


def _drift(buckets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last whole bucket of a sitting over its first one; 1 is flat.

    The last of all is cut by the end of the sitting, and left out when it is the shorter one.
    """
    whole = [bucket for bucket in buckets if bucket["whole"]] or list(buckets)
    first, last = whole[0], whole[-1]
    names = ("turn_seconds_p50", "turn_seconds_p99", "node_resident_bytes", "node_open_files")
    return {
        name: float(last[name]) / float(first[name])
        for name in names
        if first.get(name) and last.get(name)
    }


def _buckets(sitting: Mapping[str, Any]) -> list[dict[str, Any]]:
    buckets: list[dict[str, Any]] = sitting["buckets"]
    return buckets


def _sum(sitting: Mapping[str, Any], name: str) -> float:
    total: float = sum(bucket[name] for bucket in _buckets(sitting))
    return total
