"""Factors of rows and columns that make a tile's numbers alike before they are rounded.

KVarN (arXiv 2606.03458): the standard deviations of columns and rows are divided out in turn, and
the factors of the best turn are kept. There by sums of logarithms, here by products of the same
factors: products, quotients and roots are rounded alike on every processor (IEEE 754), so that a
tile is packed to the same bytes everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.fixed_sums import fixed_sum

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.fixed_sums import Doubles
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
    rows = np.ones((count, positions, 1))
    columns = np.ones((count, 1, channels))
    kept_rows, kept_columns = rows, columns
    of_rows, of_columns = _deviations(numbers)
    best = _spread(of_rows, of_columns)
    for turn in range(TURNS):
        if turn % 2:
            rows = np.clip(rows * of_rows, LEAST, MOST)
        else:
            columns = np.clip(columns * of_columns, LEAST, MOST)
        of_rows, of_columns = _deviations(numbers / (rows * columns))
        spread = _spread(of_rows, of_columns)
        better = (spread < best)[:, None, None]
        best = np.minimum(spread, best)
        kept_rows = np.where(better, rows, kept_rows)
        kept_columns = np.where(better, columns, kept_columns)
    return kept_rows.astype(np.float32), kept_columns.astype(np.float32)


def _spread(of_rows: Doubles, of_columns: Doubles) -> Doubles:
    """[n], the largest deviation over the smallest."""
    deviations = np.concatenate((of_rows[:, :, 0], of_columns[:, 0, :]), axis=1)
    return np.asarray(deviations.max(axis=1) / deviations.min(axis=1))


def _deviations(numbers: Doubles) -> tuple[Doubles, Doubles]:
    """The standard deviations of rows [n, 64, 1] and columns [n, 1, head_dim].

    `LEAST` at least. By the mean of the squares: in float64 that loses nothing that counts.
    """
    squares = np.square(numbers)
    found = []
    for axis in (2, 1):
        count = numbers.shape[axis]
        mean = fixed_sum(numbers, axis) / count
        variance = fixed_sum(squares, axis) / count - np.square(mean)
        found.append(np.asarray(np.sqrt(np.maximum(variance, LEAST * LEAST))))
    return found[0], found[1]
