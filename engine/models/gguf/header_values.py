"""The values of a GGUF file's metadata."""

from __future__ import annotations

import struct

from kakeya_fleet.engine.models.gguf.header_bytes import HeaderBytes

Single = bool | int | float | str
Value = Single | list[Single]

_NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_TEXT, _ARRAY = 8, 9

MOST_TEXT_BYTES = 4 << 20
"""Of one string: chat templates have some ten thousand."""
MOST_ELEMENTS = 1 << 21
"""Of one array: the largest vocabularies have 262,144 tokens and 600,000 merges."""
_LENGTH_BYTES = 8


def read_value(source: HeaderBytes, key: str) -> Value:
    """The value of `key`, its type first. Raises `GgufInvalid`."""
    kind = source.u32()
    if kind == _ARRAY:
        return _array(source, key)
    return _single(source, kind, key)


def _single(source: HeaderBytes, kind: int, key: str) -> Single:
    if kind == _TEXT:
        return source.text(MOST_TEXT_BYTES, key[:64])
    number = _NUMBERS.get(kind)
    if number is None:
        raise source.invalid(f"has {key[:64]} of type {kind}, which there is not")
    found: Single = number.unpack(source.take(number.size))[0]
    return found


def _array(source: HeaderBytes, key: str) -> list[Single]:
    kind = source.u32()
    if kind == _ARRAY:
        raise source.invalid(f"has arrays within the array {key[:64]}")
    count = source.count(f"elements of {key[:64]}", MOST_ELEMENTS)
    number = _NUMBERS.get(kind)
    if number is None and kind != _TEXT:
        raise source.invalid(f"has {key[:64]} of elements of type {kind}, which there is not")
    least = _LENGTH_BYTES if number is None else number.size
    if count * least > source.left:
        raise source.invalid(f"breaks off within {key[:64]}; fetch it again")
    if number is None:
        return [source.text(MOST_TEXT_BYTES, key[:64]) for _ in range(count)]
    taken = source.take(count * number.size)
    return [each for (each,) in number.iter_unpack(taken)]
