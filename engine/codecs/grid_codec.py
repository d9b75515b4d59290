"""Tiles as levels of a grid: every codec here that rounds is one set of these stages.

    rotate -> balance -> cut along an axis -> grid -> fields of bits

A packed tile: levels in units of four rows, scales, leasts, and the factors that were not taken
into the scales. Little-endian float16 throughout. Rows are channels where a grid is of one channel,
else positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.balance import balanced
from kakeya_fleet.engine.codecs.grid import Grid, from_grid, to_grid
from kakeya_fleet.engine.codecs.hadamard import rotated, rotation_block
from kakeya_fleet.engine.codecs.level_fields import check_rows, packed_levels, unpacked_levels
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import HALF, HALF_BYTES, TILE, check_packed, check_tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats, Packed


class Axis(StrEnum):
    """What numbers share a grid."""

    CHANNEL = "channel"
    """Those of one channel, at several positions: what keys want, whose channels differ."""
    TOKEN = "token"
    """Those of one position, in several channels."""


@dataclass(frozen=True, slots=True)
class GridCodec:
    """Rounds to 2**bits levels along `axis`, `group` numbers a grid.

    It `rotates` the channels first, and where it `balances`, divides out deviations of rows
    and columns; those across the axis are taken into the scales and cost no bits.
    """

    name: str
    bits: int
    axis: Axis
    group: int
    rotates: bool = False
    balances: bool = False
    version: int = 2

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        if self.rotates:
            rotation_block(head_dim)
        check_rows(head_dim)
        factors = HALF_BYTES * self._factor_count(head_dim)
        return TILE * head_dim * self.bits // 8 + self._grids(head_dim) * 2 * HALF_BYTES + factors

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        count, _, head_dim = tiles.shape
        self.tile_bytes(head_dim)
        numbers = rotated(tiles) if self.rotates else tiles
        parts: list[NDArray[np.float16]] = []
        across: Floats | None = None
        if self.balances:
            along, across = self._factors(numbers)
            kept = along.astype(HALF)
            numbers = numbers / (kept.astype(np.float32) * across)
            parts.append(kept.reshape(count, -1))
        grid = to_grid(self._cut(numbers), self.bits)
        if across is not None:
            grid = self._scaled(grid, across)
        return self.packed(grid, head_dim, parts)

    def packed(
        self, grid: Grid, head_dim: int, factors: Sequence[NDArray[np.float16]] = ()
    ) -> Packed:
        """Bytes [n, `tile_bytes`] of grids [n, grids, group] that lie as `encode` cuts them.

        `factors` [n, count] are those that were not taken into the scales.
        """
        sides = (len(grid.levels), *self._sides(head_dim))
        levels = packed_levels(grid.levels.reshape(sides), self.bits)
        halves = np.concatenate((grid.scale, grid.least, *factors), axis=1).astype(HALF)
        return np.concatenate((levels, halves.view(np.uint8)), axis=1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self._halves(packed, head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        halves = self._halves(packed, head_dim)
        count, grids = len(packed), self._grids(head_dim)
        cut = TILE * head_dim * self.bits // 8
        found = unpacked_levels(packed[:, :cut], *self._sides(head_dim), self.bits)
        levels = found.reshape(count, grids, -1)
        scale, least = halves[:, :grids], halves[:, grids : 2 * grids]
        numbers = self._joined(from_grid(Grid(levels, scale, least)), head_dim)
        if self.balances:
            numbers = numbers * self._spread(halves[:, 2 * grids :].astype(np.float32))
        return rotated(numbers) if self.rotates else np.ascontiguousarray(numbers)

    def _halves(self, packed: Packed, head_dim: int) -> NDArray[np.float16]:
        """Scales, leasts and factors [n, count]. Raises `CodecRefused`."""
        check_packed(self, packed, head_dim)
        halves = np.ascontiguousarray(packed[:, TILE * head_dim * self.bits // 8 :]).view(HALF)
        # What finite ones make is finite: 255 * 65,504 * 65,504 is far below float32's largest.
        if not np.isfinite(halves).all():
            raise CodecRefused(f"a tile of {self.name} has scales that are not finite")
        return halves

    def group_size(self, head_dim: int) -> int:
        """Numbers of one grid: as asked for, as far as the axis has them."""
        length = TILE if self.axis is Axis.CHANNEL else head_dim
        if length % self.group and length > self.group:
            # The largest that divides it: heads of 80 channels in groups of 16, not of 32.
            return next(size for size in range(self.group, 0, -1) if length % size == 0)
        return min(self.group, length)

    def _sides(self, head_dim: int) -> tuple[int, int]:
        """Rows and columns of a tile's levels."""
        return (head_dim, TILE) if self.axis is Axis.CHANNEL else (TILE, head_dim)

    def _grids(self, head_dim: int) -> int:
        return TILE * head_dim // self.group_size(head_dim)

    def _factor_count(self, head_dim: int) -> int:
        if not self.balances:
            return 0
        return TILE if self.axis is Axis.CHANNEL else head_dim

    def _cut(self, numbers: Floats) -> Floats:
        """[n, 64, head_dim] as [n, grids, group]."""
        count, _, head_dim = numbers.shape
        if self.axis is Axis.CHANNEL:
            numbers = numbers.swapaxes(1, 2)
        return np.ascontiguousarray(numbers).reshape(count, -1, self.group_size(head_dim))

    def _joined(self, groups: Floats, head_dim: int) -> Floats:
        """The inverse of `_cut`."""
        if self.axis is Axis.TOKEN:
            return groups.reshape(-1, TILE, head_dim)
        return groups.reshape(-1, head_dim, TILE).swapaxes(1, 2)

    def _factors(self, numbers: Floats) -> tuple[Floats, Floats]:
        """Factors along the axis, kept by themselves, and across it, taken into the scales."""
        rows, columns = balanced(numbers)
        return (rows, columns) if self.axis is Axis.CHANNEL else (columns, rows)

    def _spread(self, factors: Floats) -> Floats:
        """Kept factors [n, count] as they divide tiles."""
        return factors[:, :, None] if self.axis is Axis.CHANNEL else factors[:, None, :]

    def _scaled(self, grid: Grid, across: Floats) -> Grid:
        """With one factor of `across` a channel or position in the grids that are of it."""
        count, grids = grid.scale.shape
        factors = across.reshape(count, -1)
        each = np.repeat(factors, grids // factors.shape[1], axis=1)
        with np.errstate(over="ignore"):
            scale = (grid.scale.astype(np.float32) * each).astype(HALF)
            least = (grid.least.astype(np.float32) * each).astype(HALF)
        if not (np.isfinite(scale).all() and np.isfinite(least).all()):
            raise CodecRefused("a tile has numbers beyond 65,504, which its scales cannot hold")
        return Grid(grid.levels, scale, least)
