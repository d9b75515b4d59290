"""Keys as they were before their positions turned them, and back.

What channels of keys share over positions is there before the rotary embedding; a cache has them
behind it. A tile is aligned on absolute position, so whoever knows which tile of its history it is
knows by how much to turn: positions are no part of what is packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.fixed_turns import MOST_ANGLE, sines_and_cosines
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE, check_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """Plain rotary embedding (arXiv 2104.09864), channel i with channel i + head_dim / 2.

    `frequencies` [head_dim / 2] are radians a position, at most 1, as the model has them. An angle
    is their product with the position in float32, as models compute it.
    """

    frequencies: Floats

    def turned(self, tiles: Floats, firsts: NDArray[np.int64]) -> Floats:
        """Tiles [n, 64, head_dim] of numbers that no position has turned, turned by theirs.

        `firsts` [n] are the tiles' first positions, multiples of 64. Raises `CodecRefused` for
        others, for positions beyond 16 million, and for heads of another size.
        """
        return self._by(tiles, firsts, 1.0)

    def turned_back(self, tiles: Floats, firsts: NDArray[np.int64]) -> Floats:
        """The inverse of `turned`, to within float32."""
        return self._by(tiles, firsts, -1.0)

    def _by(self, tiles: Floats, firsts: NDArray[np.int64], sign: float) -> Floats:
        check_tiles(tiles)
        half = len(self.frequencies)
        if tiles.shape[2] != 2 * half:
            raise CodecRefused(f"heads of {2 * half} channels are turned, not of {tiles.shape[2]}")
        if len(firsts) != len(tiles) or (firsts % TILE).any() or (firsts < 0).any():
            raise CodecRefused(f"each tile has a first position, a multiple of {TILE}")
        positions = firsts[:, None] + np.arange(TILE)
        if (positions >= MOST_ANGLE).any():
            raise CodecRefused(f"positions beyond {MOST_ANGLE:,.0f} are not turned")
        angles = positions.astype(np.float32)[:, :, None] * self.frequencies
        sines, cosines = sines_and_cosines(angles.astype(np.float64))
        sines = sign * sines
        wide = tiles.astype(np.float64)
        left, right = wide[:, :, :half], wide[:, :, half:]
        both = (left * cosines - right * sines, right * cosines + left * sines)
        return np.concatenate(both, axis=2).astype(np.float32)
