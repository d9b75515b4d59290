"""Medians with intervals, the same way in every report."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

RESAMPLES = 1000
LOWER, UPPER = 0.025, 0.975


def median_interval(
    values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """A 95 % interval of the median: percentile bootstrap (Efron, 1979).

    Raises `ValueError` without values.
    """
    if not values:
        raise ValueError("no values have no median")
    rng = random.Random(seed)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(resamples)
    )
    return medians[int(LOWER * resamples)], medians[min(resamples - 1, int(UPPER * resamples))]


def summary(values: Sequence[float]) -> dict[str, object]:
    """Median, its 95 % interval and how many values there were."""
    return {
        "median": statistics.median(values),
        "interval_95": list(median_interval(values)),
        "count": len(values),
    }


def least_median(values: Sequence[float], prompts: int) -> float:
    """The least of medians by prompt, of rounds in which each of so many has one value in turn."""
    return min(statistics.median(values[at::prompts]) for at in range(prompts))
