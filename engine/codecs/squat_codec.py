"""Keys on KIVI's grid, the errors steered to where queries do not look: SQuat, arXiv 2503.24358.

Channel by channel: each error moves the channels behind it before these are rounded. What is packed
are levels, scales and leasts as KIVI has them: KIVI's codec unpacks it, and needs no calibration;
who keeps the bytes names them by that codec.
The authors take Q from the prompt; here it is fixed offline, so that neither the end of a prompt
nor how it was cut changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.grid import Grid, from_grid, to_grid
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import check_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.grid_codec import GridCodec
    from kakeya_fleet.engine.codecs.tile import Floats, Packed


@dataclass(frozen=True, slots=True, eq=False)
class SquatCodec:
    """The keys of one K/V head of one layer, whose `steering` [head_dim, head_dim] this is.

    A `Codec` whose `block` is that of the steering. `kivi` is the codec of keys whose bytes it
    makes, one grid a channel.
    """

    name: str
    kivi: GridCodec
    steering: Floats
    block: int = 1

    @property
    def version(self) -> int:
        """That of the bytes."""
        return self.kivi.version

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        if head_dim != len(self.steering):
            raise CodecRefused(
                f"{self.name} was calibrated for heads of {len(self.steering)} channels, "
                f"not of {head_dim}: calibrate it with this model"
            )
        return self.kivi.tile_bytes(head_dim)

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        count, _, head_dim = tiles.shape
        self.tile_bytes(head_dim)
        size = self.kivi.group_size(head_dim)
        rest = np.array(tiles.swapaxes(1, 2), np.float32, order="C")
        grids = []
        for first in range(0, head_dim, self.block):
            end = min(first + self.block, head_dim)
            asked = rest[:, first:end]
            grid = to_grid(np.ascontiguousarray(asked).reshape(count, -1, size), self.kivi.bits)
            self._steer(rest, asked - from_grid(grid).reshape(asked.shape), first, end)
            grids.append(grid)
        return self.kivi.packed(_joined(grids), head_dim)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self.kivi.check(packed, head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        return self.kivi.decode(packed, head_dim)

    def _steer(self, rest: Floats, lost: Floats, first: int, end: int) -> None:
        """Adds what channels `first` to `end` lost [n, block, 64] to those behind, in order."""
        for channel in range(first, end):
            shares = self.steering[channel, end:, None]
            rest[:, end:] += shares * lost[:, channel - first, None, :]


def _joined(grids: list[Grid]) -> Grid:
    """Grids of channels, one behind the other."""
    levels: Packed = np.concatenate([grid.levels for grid in grids], axis=1)
    scale: NDArray[np.float16] = np.concatenate([grid.scale for grid in grids], axis=1)
    least: NDArray[np.float16] = np.concatenate([grid.least for grid in grids], axis=1)
    return Grid(levels, scale, least)
