"""A rotation of heads that spreads what few channels hold over many.

Walsh-Hadamard, divided by the root of its size: it is its own inverse. A head size that is no
power of two is rotated in blocks of the largest one that divides it. By additions in one fixed
order (the fast transform), so that a tile's bits do not depend on its company.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats

LEAST_BLOCK = 8
"""Smaller ones spread next to nothing: a codec that says it rotates would not."""


def rotation_block(head_dim: int) -> int:
    """Channels that are rotated together. Raises `CodecRefused` below `LEAST_BLOCK`."""
    block = head_dim & -head_dim
    if block < LEAST_BLOCK:
        raise CodecRefused(
            f"heads of {head_dim} channels have no blocks of {LEAST_BLOCK} or more to rotate: "
            "take a codec that does not rotate, such as kivi4"
        )
    return block


def rotated(tiles: Floats) -> Floats:
    """Tiles [n, 64, head_dim] with the channels of each position rotated; twice is no change."""
    count, positions, head_dim = tiles.shape
    block = rotation_block(head_dim)
    found = tiles.reshape(count, positions, head_dim // block, block)
    half = 1
    while half < block:
        pairs = found.reshape(count, positions, -1, 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        found = np.stack((first + second, first - second), axis=-2)
        half *= 2
    scaled = found.reshape(tiles.shape) * np.float32(1 / math.sqrt(block))
    return np.asarray(scaled, np.float32)
