"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) of chunks of tensors.

The checksum is linear over GF(2): with a zero start it is the sum (exclusive or)
of what each byte alone contributes, which depends on the byte and on how many
bytes follow. So rows of bytes are looked up all at once, and only their sums are
carried on one after the other.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_REFLECTED_POLYNOMIAL = 0x82F63B78
_ROW = 256
_ALL_ONES = 0xFFFFFFFF


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of `data`, 0 to 2**32 - 1."""
    plain = np.frombuffer(data, np.uint8)
    count = plain.size
    if count < 4:
        return _bytewise(plain)
    tables = _tables()
    # Zeros before the data change nothing when the register starts at zero; that it
    # starts at ones is the same as the first four bytes inverted.
    padded = np.zeros(-(-count // _ROW) * _ROW, np.uint8)
    padded[-count:] = plain
    begin = padded.size - count
    padded[begin : begin + 4] ^= 0xFF
    rows = tables.contributions.take(padded.reshape(-1, _ROW) + tables.offsets)
    register = 0
    low, second, third, high = tables.row_later
    for contribution in np.bitwise_xor.reduce(rows, axis=1).tolist():
        register = (
            low[register & 0xFF]
            ^ second[register >> 8 & 0xFF]
            ^ third[register >> 16 & 0xFF]
            ^ high[register >> 24]
            ^ contribution
        )
    return register ^ _ALL_ONES


class _Tables:
    """`contributions` of a byte by its place in a row, `row_later` of a register's bytes."""

    def __init__(self) -> None:
        single: NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            divided = (single & np.uint32(1)) * np.uint32(_REFLECTED_POLYNOMIAL)
            single = (single >> np.uint32(1)) ^ divided
        self.single: list[int] = single.tolist()
        following = [single]
        for _ in range(_ROW - 1):
            following.append(_one_later(following[-1], single))
        self.contributions: NDArray[np.uint32] = np.concatenate(following[::-1])
        self.offsets = np.arange(_ROW, dtype=np.intp) * 256
        self.row_later: list[list[int]] = []
        for byte in range(4):
            registers: NDArray[np.uint32] = np.arange(256, dtype=np.uint32) << np.uint32(8 * byte)
            for _ in range(_ROW):
                registers = _one_later(registers, single)
            self.row_later.append(registers.tolist())


def _one_later(registers: NDArray[np.uint32], single: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Registers after one more zero byte."""
    later: NDArray[np.uint32] = single[registers & 0xFF] ^ (registers >> np.uint32(8))
    return later


@cache
def _tables() -> _Tables:
    return _Tables()


def _bytewise(data: NDArray[np.uint8]) -> int:
    single = _tables().single
    register = _ALL_ONES
    for byte in data.tolist():
        register = single[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ _ALL_ONES
