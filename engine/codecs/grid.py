"""Rounding to evenly spaced levels between the least and the largest number of a group.

Asymmetric: level * scale + least, both kept as float16, as KIVI does (arXiv 2402.02750).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats, Packed


@dataclass(frozen=True, slots=True)
class Grid:
    """Levels [n, groups, size], and each group's `scale` and `least` [n, groups]."""

    levels: Packed
    scale: NDArray[np.float16]
    least: NDArray[np.float16]


def to_grid(groups: Floats, bits: int) -> Grid:
    """Numbers [n, groups, size] on a grid each. Raises `CodecRefused` beyond float16."""
    # A zero has one sign.
    least, most = (found + np.float32(0) for found in (groups.min(axis=2), groups.max(axis=2)))
    top = (1 << bits) - 1
    with np.errstate(over="ignore"):
        scale16 = ((most - least) / np.float32(top)).astype(np.float16)
        least16 = least.astype(np.float16)
    if not (np.isfinite(scale16).all() and np.isfinite(least16).all()):
        raise CodecRefused("a tile has numbers beyond 65,504, which its scales cannot hold")
    scale = scale16.astype(np.float32)[:, :, None]
    # A group of equal numbers has no steps: all of it is its least.
    steps = np.divide(
        groups - least16.astype(np.float32)[:, :, None],
        scale,
        out=np.zeros_like(groups),
        where=scale > 0,
    )
    levels = np.clip(np.rint(steps), 0, top).astype(np.uint8)
    return Grid(levels, scale16, least16)


def from_grid(grid: Grid) -> Floats:
    """The numbers [n, groups, size] that the levels stand for."""
    scale, least = (part.astype(np.float32)[:, :, None] for part in (grid.scale, grid.least))
    return np.asarray(grid.levels.astype(np.float32) * scale + least, np.float32)
