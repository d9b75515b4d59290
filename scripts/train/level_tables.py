"""Look-up tables of levels: weighted k-means of numbers in one dimension.

KVQuant (arXiv 2401.18079, section 3.3): sum of weight * (number - its level)^2 is least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BINS = 4096
ROUNDS = 300


@dataclass(frozen=True)
class Spread:
    """Numbers from -1 to 1, counted in `BINS` equal bins: how many, and how heavy."""

    counts: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, weights: np.ndarray) -> Spread:
        """Of numbers of any shape; those beyond -1 to 1 are left out."""
        held = np.abs(numbers) <= 1
        bins = np.minimum(((numbers[held] + 1) * (BINS / 2)).astype(np.int64), BINS - 1)
        heavy = np.bincount(bins, weights[held].astype(np.float64), BINS)
        return cls(np.bincount(bins, minlength=BINS).astype(np.float64), heavy)

    @property
    def middles(self) -> np.ndarray:
        """Of the bins."""
        found: np.ndarray = (np.arange(BINS) + 0.5) * (2 / BINS) - 1
        return found


def levels_of(spread: Spread, count: int) -> np.ndarray:
    """So many levels [count], ascending, by Lloyd's rounds from evenly spaced ones."""
    middles = spread.middles
    levels = (np.arange(count) + 0.5) * (2 / count) - 1
    for _ in range(ROUNDS):
        nearest = np.searchsorted(edges_of(levels), middles)
        total = np.bincount(nearest, spread.weights, count)
        moment = np.bincount(nearest, spread.weights * middles, count)
        # A level that nothing is near stays where it is.
        moved = np.divide(moment, total, out=levels.copy(), where=total > 0)
        if np.array_equal(moved, levels):
            break
        levels = moved
    return levels


def edges_of(levels: np.ndarray) -> np.ndarray:
    """Halfway between levels."""
    found: np.ndarray = (levels[:-1] + levels[1:]) / 2
    return found


def normed(spread: Spread, levels: np.ndarray) -> np.ndarray:
    """Levels moved as a whole, so that mean and deviation of all numbers stay theirs: Q-Norm."""
    middles, share = spread.middles, spread.counts / spread.counts.sum()
    read = levels[np.searchsorted(edges_of(levels), middles)]
    mean, read_mean = (share * middles).sum(), (share * read).sum()
    deviation = np.sqrt((share * (middles - mean) ** 2).sum())
    read_deviation = np.sqrt((share * (read - read_mean) ** 2).sum())
    found: np.ndarray = (levels - read_mean) * (deviation / read_deviation) + mean
    return found
