"""Levels that are not evenly spaced: a look-up table.

Numbers between two edges have one level. What a level stands for need not lie halfway between its
edges: KVQuant's Q-Norm (arXiv 2401.18079) moves the levels behind the rounding, so that mean and
deviation of what is read are those of what was rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats, Packed

MOST = 4.0
"""Of an edge or level, either way; what is rounded is within -1 to 1, but for outliers."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelTable:
    """`edges` [2**bits - 1] and `levels` [2**bits], both ascending.

    Raises `CodecRefused` for others, and beyond `MOST`.
    """

    edges: Floats
    levels: Floats

    def __post_init__(self) -> None:
        count = len(self.levels)
        # A comparison with what is no number is false.
        fits = count in (4, 8, 16) and self.edges.shape == (count - 1,)
        for part in (self.edges, self.levels):
            fits = fits and part.ndim == 1 and bool((np.abs(part) <= MOST).all())
            fits = fits and bool((np.diff(part) >= 0).all())
        if not fits:
            raise CodecRefused(
                f"a table of levels has to have 4, 8 or 16 of them and edges between these, "
                f"ascending and within {MOST:g} of 0"
            )

    @property
    def bits(self) -> int:
        """Of a level."""
        return len(self.edges).bit_length()

    def rounded(self, numbers: Floats) -> Packed:
        """Levels, counted from 0; a number that is an edge has the level below it."""
        return np.searchsorted(self.edges, numbers).astype(np.uint8)

    def read(self, levels: Packed) -> Floats:
        """What levels below 2**bits stand for."""
        return self.levels[levels]
