"""Levels of 1 to 8 bits without a bit between them: one plane of bits after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Packed


def packed_planes(levels: Packed, bits: int) -> Packed:
    """Levels [n, count] below 2**bits as bytes [n, bits * count / 8]; 8 divides `count`."""
    planes = [np.packbits((levels >> bit) & 1, axis=1, bitorder="little") for bit in range(bits)]
    return np.concatenate(planes, axis=1)


def unpacked_planes(packed: Packed, bits: int) -> Packed:
    """The inverse of `packed_planes`."""
    planes = [
        np.unpackbits(plane, axis=1, bitorder="little") << bit
        for bit, plane in enumerate(np.split(packed, bits, axis=1))
    ]
    levels: Packed = np.bitwise_or.reduce(planes)
    return levels
