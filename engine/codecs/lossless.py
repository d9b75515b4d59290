"""Numbers as bfloat16: what a cache of that format keeps, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE, check_packed, check_tiles

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats, Packed


class Lossless:
    """A `Codec` that refuses what bfloat16 does not hold exactly."""

    name = "lossless"
    version = 1

    def tile_bytes(self, head_dim: int) -> int:
        """See `Codec`."""
        return 2 * TILE * head_dim

    def encode(self, tiles: Floats) -> Packed:
        """See `Codec`."""
        check_tiles(tiles)
        bits = np.ascontiguousarray(tiles).view(np.uint32)
        if (bits & 0xFFFF).any():
            raise CodecRefused("a tile has numbers that are not bfloat16: pack it by a lossy codec")
        halves = (bits >> 16).astype("<u2")
        return halves.reshape(len(tiles), -1).view(np.uint8)

    def check(self, packed: Packed, head_dim: int) -> None:
        """See `Codec`."""
        self.decode(packed, head_dim)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """See `Codec`."""
        check_packed(self, packed, head_dim)
        halves = np.ascontiguousarray(packed).view("<u2").astype(np.uint32) << 16
        tiles = halves.view(np.float32).reshape(len(packed), TILE, head_dim)
        if not np.isfinite(tiles).all():
            raise CodecRefused("a tile of lossless has numbers that are not finite")
        return tiles
