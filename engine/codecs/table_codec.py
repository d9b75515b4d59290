"""Levels of a calibrated table and one outlier of a hundred: KVQuant, arXiv 2401.18079.

Keys by channel, as they were before the rotary embedding (`rotary.py` takes it off and puts it on
again), in ranges that a calibration found: nothing but levels and outliers is packed. Values by
position, in the range of what is no outlier, middle and reach as float16. Which of a tile's numbers
are outliers: keys, those furthest from the middle of their channel, in reaches; values, those
furthest from the mean of their position, in its deviations. There by a threshold a channel or
position, here as many as a tile has slots (`outliers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.fixed_sums import fixed_sum
from kakeya_fleet.engine.codecs.level_fields import check_rows, packed_levels, unpacked_levels
from kakeya_fleet.engine.codecs.outliers import (
    check_halves,
    furthest,
    packed_outliers,
    slot_bytes,
    unpacked_outliers,
    with_outliers,
)
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import HALF, HALF_BYTES, TILE, check_packed, check_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.fixed_sums import Doubles
    from kakeya_fleet.engine.codecs.level_table import LevelTable
    from kakeya_fleet.engine.codecs.outliers import Places
    from kakeya_fleet.engine.codecs.tile import Floats, Packed


@dataclass(frozen=True, slots=True, eq=False)
class KeyTableCodec:
    """The keys of one K/V head of one layer, not turned: a `Codec`.

    `middles` and `reaches` [head_dim] are the channels' ranges, without outliers.
    """

    name: str
    table: LevelTable
    middles: Floats
    reaches: Floats
    version: int = 1

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        if head_dim != len(self.middles):
            raise CodecRefused(
                f"{self.name} was calibrated for heads of {len(self.middles)} channels, "
                f"not of {head_dim}: calibrate it with this model"
            )
        check_rows(head_dim)
        return TILE * head_dim * self.table.bits // 8 + slot_bytes(head_dim)

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        self.tile_bytes(tiles.shape[2])
        check_halves(tiles)
        within = (tiles - self.middles) / self.reaches
        levels = self.table.rounded(within).swapaxes(1, 2)
        outliers = packed_outliers(tiles, furthest(np.abs(within)))
        return np.concatenate((packed_levels(levels, self.table.bits), outliers), axis=1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self._outliers(packed, head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        outliers = self._outliers(packed, head_dim)
        cut = TILE * head_dim * self.table.bits // 8
        levels = unpacked_levels(packed[:, :cut], head_dim, TILE, self.table.bits)
        within = self.table.read(levels.swapaxes(1, 2))
        return with_outliers(within * self.reaches + self.middles, *outliers)

    def _outliers(self, packed: Packed, head_dim: int) -> tuple[Places, Floats]:
        check_packed(self, packed, head_dim)
        return unpacked_outliers(packed[:, -slot_bytes(head_dim) :], head_dim)


@dataclass(frozen=True, slots=True, eq=False)
class ValueTableCodec:
    """The values of any K/V head of one layer: a `Codec`."""

    name: str
    table: LevelTable
    version: int = 1

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        check_rows(head_dim)
        levels = TILE * head_dim * self.table.bits // 8
        return levels + 2 * TILE * HALF_BYTES + slot_bytes(head_dim)

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        self.tile_bytes(tiles.shape[2])
        check_halves(tiles)
        places = furthest(from_means(tiles))
        outliers = packed_outliers(tiles, places)
        ranges = value_ranges(tiles, places)
        levels = packed_levels(self.table.rounded(within(tiles, ranges)), self.table.bits)
        halves = np.ascontiguousarray(ranges.reshape(len(tiles), -1)).view(np.uint8)
        return np.concatenate((levels, halves, outliers), axis=1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self._ranges(packed, head_dim)
        unpacked_outliers(packed[:, -slot_bytes(head_dim) :], head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        middles, reaches = self._ranges(packed, head_dim)
        outliers = unpacked_outliers(packed[:, -slot_bytes(head_dim) :], head_dim)
        cut = TILE * head_dim * self.table.bits // 8
        levels = unpacked_levels(packed[:, :cut], TILE, head_dim, self.table.bits)
        return with_outliers(self.table.read(levels) * reaches + middles, *outliers)

    def _ranges(self, packed: Packed, head_dim: int) -> tuple[Floats, Floats]:
        """Middles and reaches [n, 64, 1]. Raises `CodecRefused`."""
        check_packed(self, packed, head_dim)
        cut = TILE * head_dim * self.table.bits // 8
        halves = np.ascontiguousarray(packed[:, cut : cut + 2 * TILE * HALF_BYTES]).view(HALF)
        if not np.isfinite(halves).all():
            raise CodecRefused(f"a tile of {self.name} has ranges that are not finite")
        middles, reaches = halves.astype(np.float32).reshape(-1, 2, TILE, 1).swapaxes(0, 1)
        return middles, reaches


def from_means(tiles: Floats) -> Doubles:
    """How far numbers [n, 64, head_dim] are from their position's mean, in its deviations."""
    wide = tiles.astype(np.float64)
    moved = wide - fixed_sum(wide, 2) / tiles.shape[2]
    deviations = np.sqrt(fixed_sum(np.square(moved), 2) / tiles.shape[2])
    distances: Doubles = np.abs(moved)
    np.divide(distances, deviations, out=distances, where=deviations > 0)
    return distances


def value_ranges(tiles: Floats, places: Places) -> NDArray[np.float16]:
    """Middles and reaches [n, 2, 64] of what is no outlier, for each position.

    Of numbers within float16.
    """
    is_outlier = np.zeros((len(tiles), tiles[0].size), np.bool_)
    np.put_along_axis(is_outlier, places, values=True, axis=1)
    hidden = is_outlier.reshape(tiles.shape)
    least = np.where(hidden, np.inf, tiles).min(axis=2)
    most = np.where(hidden, -np.inf, tiles).max(axis=2)
    # A zero has one sign.
    ranges = np.stack(((least + most) / 2, (most - least) / 2), axis=1) + 0.0
    return ranges.astype(HALF)


def within(tiles: Floats, ranges: NDArray[np.float16]) -> Floats:
    """Numbers [n, 64, head_dim] in the ranges of their positions, -1 to 1 but for outliers.

    Where all of a position's are equal, 0.
    """
    middles, reaches = ranges.astype(np.float32)[..., None].swapaxes(0, 1)
    found = np.zeros_like(tiles)
    np.divide(tiles - middles, reaches, out=found, where=reaches > 0)
    return found
