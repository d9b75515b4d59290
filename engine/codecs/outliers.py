"""The few numbers of a tile that are kept as they are, beside its levels.

Dense and sparse, as KVQuant has it (arXiv 2401.18079): one of a hundred, as float16. There as many
as lie beyond a threshold, here a fixed number of slots a tile, so that all tiles have as many
bytes: what would have been the next is taken to the end of the range. A slot has the place within
the tile, position by position, in 16 bits, and the number; slots are in the order of their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import HALF, HALF_BYTES, TILE

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats, Packed

    Places = NDArray[np.int64]

SHARE = 100
"""One of so many numbers is an outlier."""
_PLACE = "<u2"
_BEYOND = 65520
MOST_HEAD = (1 << 16) // TILE


def slots(head_dim: int) -> int:
    """Outliers of a tile. Raises `CodecRefused` for heads whose places have more than 16 bits."""
    if head_dim > MOST_HEAD:
        raise CodecRefused(f"heads of {head_dim} channels: {MOST_HEAD} is the most for outliers")
    return -(-TILE * head_dim // SHARE)


def slot_bytes(head_dim: int) -> int:
    """Bytes of a tile's outliers."""
    return slots(head_dim) * 2 * HALF_BYTES


def furthest(distances: NDArray[np.floating[Any]]) -> Places:
    """Places [n, slots] of the largest distances [n, 64, head_dim], ascending.

    Of equal ones the first in the tile.
    """
    count, _, head_dim = distances.shape
    order = np.argsort(-distances.reshape(count, -1), axis=1, kind="stable")
    return np.sort(order[:, : slots(head_dim)], axis=1)


def check_halves(tiles: Floats) -> None:
    """Raises `CodecRefused` where any of the numbers is too large for an outlier."""
    # The numbers that are rounded to the largest float16 are not too large.
    if np.abs(tiles).max(initial=0.0) >= _BEYOND:
        raise CodecRefused("a tile has numbers beyond 65,504, which its outliers cannot hold")


def packed_outliers(tiles: Floats, places: Places) -> Packed:
    """Bytes [n, `slot_bytes`] of numbers within float16."""
    numbers = np.take_along_axis(tiles.reshape(len(tiles), -1), places, axis=1).astype(HALF)
    parts = (places.astype(_PLACE).view(np.uint8), np.ascontiguousarray(numbers).view(np.uint8))
    return np.concatenate(parts, axis=1)


def unpacked_outliers(packed: Packed, head_dim: int) -> tuple[Places, Floats]:
    """Places and numbers [n, slots].

    Raises `CodecRefused` for places that are not in the tile or not ascending, and for numbers
    that are not finite.
    """
    cut = slots(head_dim) * HALF_BYTES
    places = np.ascontiguousarray(packed[:, :cut]).view(_PLACE).astype(np.int64)
    numbers = np.ascontiguousarray(packed[:, cut:]).view(HALF).astype(np.float32)
    if (np.diff(places, axis=1) <= 0).any() or (places >= TILE * head_dim).any():
        raise CodecRefused("a tile has outliers whose places are not in it, or not in order")
    if not np.isfinite(numbers).all():
        raise CodecRefused("a tile has outliers that are not finite")
    return places, numbers


def with_outliers(tiles: Floats, places: Places, numbers: Floats) -> Floats:
    """Tiles [n, 64, head_dim] with the numbers at their places."""
    found = tiles.reshape(len(tiles), -1).copy()
    np.put_along_axis(found, places, numbers, axis=1)
    return found.reshape(tiles.shape)
