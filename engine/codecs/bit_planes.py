"""Numbers of 1 to 64 bits without a bit between them: one plane of bits after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Packed


def packed_planes(numbers: NDArray[np.unsignedinteger[Any]], bits: int) -> Packed:
    """Numbers [n, count] below 2**bits as bytes [n, bits * count / 8]; 8 divides `count`."""
    one = numbers.dtype.type(1)
    planes = [
        np.packbits(((numbers >> numbers.dtype.type(bit)) & one).astype(np.uint8), 1, "little")
        for bit in range(bits)
    ]
    return np.concatenate(planes, axis=1)


def unpacked_planes(packed: Packed, bits: int) -> NDArray[np.unsignedinteger[Any]]:
    """The inverse of `packed_planes`: bytes up to 8 bits, else 64-bit numbers."""
    dtype = np.dtype(np.uint8 if bits <= 8 else np.uint64)
    numbers = np.zeros((len(packed), packed.shape[1] * 8 // bits), dtype)
    for bit, plane in enumerate(np.split(packed, bits, axis=1)):
        levels = np.unpackbits(plane, axis=1, bitorder="little").astype(dtype)
        numbers |= levels << dtype.type(bit)
    return numbers
