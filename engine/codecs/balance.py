"""Factors of rows and columns that make a tile's numbers alike before they are rounded.

KVarN (arXiv 2606.03458): the standard deviations of columns and rows are divided out in turn,
in the log domain, and the factors of the best turn are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.fixed_sums import fixed_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats

TURNS = 8
LEAST, MOST = 1e-3, 1e3
"""Of a factor: what is smaller or larger is left to the grid."""


def balanced(tiles: Floats) -> tuple[Floats, Floats]:
    """Factors of rows [n, 64, 1] and of columns [n, 1, head_dim].

    The best are those whose quotient has the least ratio between its largest and its smallest
    deviation, of rows and columns alike.
    """
    count, positions, channels = tiles.shape
    numbers = tiles.astype(np.float64)
    rows = np.zeros((count, positions, 1))
    columns = np.zeros((count, 1, channels))
    best = _spread(numbers, rows, columns)
    kept_rows, kept_columns = rows, columns
    for turn in range(TURNS):
        quotient = numbers * np.exp(-(rows + columns))
        if turn % 2:
            rows = _clamped(rows + _log_deviation(quotient, axis=2))
        else:
            columns = _clamped(columns + _log_deviation(quotient, axis=1))
        spread = _spread(numbers, rows, columns)
        better = (spread < best)[:, None, None]
        best = np.minimum(spread, best)
        kept_rows = np.where(better, rows, kept_rows)
        kept_columns = np.where(better, columns, kept_columns)
    return np.exp(kept_rows).astype(np.float32), np.exp(kept_columns).astype(np.float32)


def _clamped(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(logarithms, np.log(LEAST), np.log(MOST)))


def _spread(
    numbers: NDArray[np.float64], rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[n], the logarithm of the largest deviation over the smallest."""
    quotient = numbers * np.exp(-(rows + columns))
    of_rows = _log_deviation(quotient, axis=2)[:, :, 0]
    of_columns = _log_deviation(quotient, axis=1)[:, 0, :]
    deviations = np.concatenate((of_rows, of_columns), axis=1)
    return np.asarray(deviations.max(axis=1) - deviations.min(axis=1))


def _log_deviation(numbers: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Logarithms of the standard deviations along an axis, which is kept; `LEAST` at least."""
    count = numbers.shape[axis]
    mean = fixed_sum(numbers, axis) / count
    squares = fixed_sum(np.square(numbers - mean), axis) / count
    return np.asarray(np.log(np.maximum(np.sqrt(squares), LEAST)))
