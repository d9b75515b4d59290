"""Tiles as points of a lattice: rotated, each position by its norm and its largest channel.

As KakeyaLattice makes its round trip (PyPI `kakeyalattice`), with numbers for the points: a packed
tile has the bit planes of these, and two float16 a position, norm and largest channel of unit norm.
D4 gives that package's bits; E8 takes the nearest point that has a number, where the package clamps
to vectors that are none of the lattice's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.bit_planes import packed_planes, unpacked_planes
from kakeya_fleet.engine.codecs.fixed_sums import fixed_sum
from kakeya_fleet.engine.codecs.hadamard import rotated, rotation_block
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import HALF, HALF_BYTES, TILE, check_packed, check_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.lattices import Lattice
    from kakeya_fleet.engine.codecs.tile import Floats, Packed

LEAST = 2.0**-14
"""Of a norm and of a largest channel: what is smaller is 0 for all that attention sees."""


@dataclass(frozen=True, slots=True)
class LatticeCodec:
    """Points of `lattice`; see the module."""

    name: str
    lattice: Lattice
    version: int = 1

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        rotation_block(head_dim)
        blocks = TILE * head_dim // self.lattice.size
        return blocks * self.lattice.bits // 8 + 2 * TILE * HALF_BYTES

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        count, _, head_dim = tiles.shape
        self.tile_bytes(head_dim)
        squares = fixed_sum(np.square(tiles.astype(np.float64)), 2)
        norms = np.maximum(np.sqrt(squares).astype(np.float32), LEAST)
        unit = rotated(np.asarray(tiles / norms, np.float32))
        most = np.maximum(np.abs(unit).max(axis=2, keepdims=True), LEAST)
        with np.errstate(over="ignore"):
            norm16, most16 = norms.astype(HALF), most.astype(HALF)
        if not np.isfinite(norm16).all():
            raise CodecRefused("a position has a norm beyond 65,504, which its scale cannot hold")
        scaled = unit / (most16.astype(np.float32) / np.float32(self.lattice.reach))
        whole, half = self.lattice.nearest(scaled.reshape(count, -1, self.lattice.size))
        planes = packed_planes(self.lattice.numbers(whole, half), self.lattice.bits)
        halves = np.concatenate((norm16.reshape(count, -1), most16.reshape(count, -1)), axis=1)
        return np.concatenate((planes, np.ascontiguousarray(halves).view(np.uint8)), axis=1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self._halves(packed, head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        halves = self._halves(packed, head_dim)
        count, cut = len(packed), packed.shape[1] - 2 * TILE * HALF_BYTES
        norms, most = halves.astype(np.float32).reshape(count, 2, TILE, 1).swapaxes(0, 1)
        points = self.lattice.points(unpacked_planes(packed[:, :cut], self.lattice.bits))
        unit = points.reshape(count, TILE, head_dim) * (most / np.float32(self.lattice.reach))
        return np.asarray(rotated(unit) * norms, np.float32)

    def _halves(self, packed: Packed, head_dim: int) -> NDArray[np.float16]:
        """Norms, then largest channels [n, 2 * 64]. Raises `CodecRefused`."""
        check_packed(self, packed, head_dim)
        halves = np.ascontiguousarray(packed[:, -2 * TILE * HALF_BYTES :]).view(HALF)
        if not np.isfinite(halves).all():
            raise CodecRefused(f"a tile of {self.name} has scales that are not finite")
        return halves
