"""Levels of a tile without a bit between them, in the order in which attention reads them.

Rows of a tile are what attention adds up: channels of keys, positions of values. Four rows lie
side by side, level by level, so that one instruction multiplies and adds four: a unit is four rows
of up to 64 columns, [columns, 4]. Its levels are cut into fields of 8, 4, 2 or 1 bits, the low bits
first; a byte has those of levels that are an equal part of the unit apart, or of eight in a row
where a field is one bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kakeya_fleet.engine.codecs.tile import Packed

QUAD = 4
BLOCK = 64
"""Columns of a unit, but for the last ones of a tile."""


def check_rows(rows: int) -> None:
    """Raises `CodecRefused` for a tile whose rows are no whole units."""
    if rows % QUAD:
        raise CodecRefused(f"heads of {rows} channels cannot be packed, {QUAD} at a time")


def packed_levels(levels: Packed, bits: int) -> Packed:
    """Levels [n, rows, columns] below 2**bits as bytes [n, rows * columns * bits / 8]."""
    count, rows, columns = levels.shape
    parts = []
    for first in range(0, columns, BLOCK):
        block = levels[:, :, first : first + BLOCK]
        width = block.shape[2]
        turned = block.reshape(count, rows // QUAD, QUAD, width).swapaxes(2, 3)
        units = turned.reshape(count, rows // QUAD, QUAD * width)
        fields = [
            _field(units >> np.uint8(shift) & _mask(size), size) for shift, size in _fields(bits)
        ]
        parts.append(np.concatenate(fields, axis=2).reshape(count, -1))
    return np.concatenate(parts, axis=1)


def unpacked_levels(packed: Packed, rows: int, columns: int, bits: int) -> Packed:
    """The inverse of `packed_levels`."""
    count = len(packed)
    blocks, done = [], 0
    for first in range(0, columns, BLOCK):
        width = min(BLOCK, columns - first)
        units = rows // QUAD
        own = packed[:, done : done + rows * width * bits // 8].reshape(count, units, -1)
        done += rows * width * bits // 8
        levels = np.zeros((count, units, QUAD * width), np.uint8)
        begin = 0
        for shift, size in _fields(bits):
            end = begin + QUAD * width * size // 8
            levels |= _levels(own[:, :, begin:end], size) << np.uint8(shift)
            begin = end
        turned = levels.reshape(count, units, width, QUAD).swapaxes(2, 3)
        blocks.append(turned.reshape(count, rows, width))
    return np.concatenate(blocks, axis=2)


def _fields(bits: int) -> Iterator[tuple[int, int]]:
    """The shifts and sizes of a level's fields, the low bits first."""
    shift = 0
    for size in (8, 4, 2, 1):
        if bits & size:
            yield shift, size
            shift += size


def _mask(size: int) -> np.uint8:
    return np.uint8((1 << size) - 1)


def _field(values: Packed, size: int) -> Packed:
    """Fields [n, units, count] as bytes."""
    if size == 1:
        return np.packbits(values, axis=2, bitorder="little")
    apart = 8 // size
    found = np.zeros((*values.shape[:2], values.shape[2] // apart), np.uint8)
    for index, part in enumerate(np.split(values, apart, axis=2)):
        found |= part << np.uint8(size * index)
    return found


def _levels(packed: Packed, size: int) -> Packed:
    """The inverse of `_field`."""
    if size == 1:
        return np.unpackbits(packed, axis=2, bitorder="little")
    parts = [packed >> np.uint8(size * index) & _mask(size) for index in range(8 // size)]
    return np.concatenate(parts, axis=2)
