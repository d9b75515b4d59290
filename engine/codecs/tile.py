"""The unit that is packed: one head's keys or values at 64 positions.

Tiles are aligned on absolute position, and one that is not complete is not packed. So what is
packed is a function of the numbers alone: neither how a history was cut into forwards, nor what
was drafted and taken back, nor which other tiles are packed in the same call, changes a bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE = 64
"""Positions of a tile."""
HALF = "<f2"
"""Of scales."""
HALF_BYTES = 2

Floats: TypeAlias = "NDArray[np.float32]"
Packed: TypeAlias = "NDArray[np.uint8]"


class Codec(Protocol):
    """Packs tiles [n, 64, head_dim] as bytes [n, tile_bytes(head_dim)], and back.

    The bytes of a tile depend on `name`, `version` and the tile alone, and on its calibration
    where a codec is made with one. What was packed under another version is not unpacked.
    """

    @property
    def name(self) -> str:
        """Names it among all codecs."""
        ...

    @property
    def version(self) -> int:
        """Raised with any change of what a byte means, or of one bit of what is unpacked."""
        ...

    def tile_bytes(self, head_dim: int) -> int:
        """Bytes of one tile, scales included. Raises `CodecRefused` for heads it cannot pack."""
        ...

    def encode(self, tiles: Floats) -> Packed:
        """Raises `CodecRefused` for numbers that are not finite, or too large for its scales."""
        ...

    def check(self, packed: Packed, head_dim: int) -> None:
        """Raises `CodecRefused` for bytes that `decode` refuses, and does no more."""
        ...

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """Finite numbers. Raises `CodecRefused` for bytes that are no tiles of this codec."""
        ...


def bits_a_value(codec: Codec, head_dim: int) -> float:
    """Bits of one packed number, with its share of all scales."""
    return 8 * codec.tile_bytes(head_dim) / (TILE * head_dim)


def check_tiles(tiles: Floats) -> None:
    """Raises `CodecRefused` unless they are finite float32 [n, 64, head_dim]."""
    if tiles.dtype != np.float32 or tiles.ndim != 3 or tiles.shape[1] != TILE:
        raise CodecRefused(f"{tiles.dtype} {list(tiles.shape)} are no tiles of {TILE} positions")
    if not np.isfinite(tiles).all():
        raise CodecRefused("a tile has numbers that are not finite")


def check_packed(codec: Codec, packed: Packed, head_dim: int) -> None:
    """Raises `CodecRefused` unless they are bytes [n, tile_bytes(head_dim)]."""
    nbytes = codec.tile_bytes(head_dim)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != nbytes:
        raise CodecRefused(
            f"{packed.dtype} {list(packed.shape)} are no tiles of {codec.name}, {nbytes} bytes each"
        )
