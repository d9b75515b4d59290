"""Fields of protobuf's wire format, written by hand: also those that no library writes.

See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

MOST_VARINT_BYTES = 10


class WireType(IntEnum):
    """How many bytes a field has. 3 and 4 begin and end groups, which proto3 has none of."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def tag(number: int, wire_type: WireType) -> bytes:
    """What stands before a field's value."""
    return varint(number << 3 | wire_type)


def field_of(number: int, wire_type: WireType, content: bytes = b"") -> bytes:
    """A field of any type: `content` is its value, filled up or cut to its size."""
    head = tag(number, wire_type)
    match wire_type:
        case WireType.VARINT:
            return head + varint(int.from_bytes(content[:8], "little"))
        case WireType.FIXED64:
            return head + content[:8].ljust(8, b"\0")
        case WireType.FIXED32:
            return head + content[:4].ljust(4, b"\0")
        case WireType.BYTES:
            return head + varint(len(content)) + content
        case _:
            return head


def longer_than_it_is(number: int, content: bytes, claimed: int) -> bytes:
    """A field of bytes that claims to have `claimed` of them."""
    return tag(number, WireType.BYTES) + varint(claimed) + content


def packed_doubles(*values: float) -> bytes:
    """Little-endian IEEE 754 binary64."""
    return struct.pack(f"<{len(values)}d", *values)


def fields_of(message: bytes) -> Iterator[bytes]:
    """The top fields of a valid message, each with its tag. Raises `ValueError`, `IndexError`."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        match key & 7:
            case WireType.VARINT:
                _, at = _read_varint(message, at)
            case WireType.FIXED64:
                at += 8
            case WireType.FIXED32:
                at += 4
            case WireType.BYTES:
                size, at = _read_varint(message, at)
                at += size
            case other:
                raise ValueError(f"proto3 has no wire type {other}")
        yield message[start:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(MOST_VARINT_BYTES):
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a varint of more than ten bytes")
