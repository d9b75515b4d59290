"""Messages between the leader of a group and its ranks, as bytes.

A frame is 4 bytes `KGM1`, the header's length (u32, little-endian), the header
(a JSON object, UTF-8), then the arrays in the order in which `arrays` of the
header names their shapes: float32, little-endian, row by row. Nothing in a frame
can run anything.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kakeya_fleet.engine.group.fields import Header, MalformedMessage, as_section, items

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC = b"KGM1"
MAX_HEADER_BYTES = 16 << 20
MAX_ARRAY_BYTES = 4 << 30

_PREFIX = struct.Struct("<4sI")
_NUMBER, _NUMBER_BYTES = "<f4", 4

FloatArray: TypeAlias = "NDArray[np.float32]"
Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Message:
    """A header, whose key `arrays` is this module's, and the arrays that come with it."""

    header: Header
    arrays: tuple[FloatArray, ...] = ()


def encode(message: Message) -> list[Buffer]:
    """The frame's parts, to be sent one after the other; arrays are not copied."""
    arrays = [np.asarray(array, _NUMBER, order="C") for array in message.arrays]
    header = {**message.header, "arrays": [list(array.shape) for array in arrays]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    parts: list[Buffer] = [_PREFIX.pack(MAGIC, len(encoded)) + encoded]
    parts += [array.data.cast("B") for array in arrays if array.nbytes]
    return parts


def decode(read: Callable[[int], Buffer], *, most_array_bytes: int = MAX_ARRAY_BYTES) -> Message:
    """The message whose frame `read(count)` gives, exactly `count` bytes at a time.

    The arrays are over the memory that `read` returned. Raises `MalformedMessage`,
    before it asks for more bytes than a message may have.
    """
    magic, size = _PREFIX.unpack(read(_PREFIX.size))
    if magic != MAGIC or size > MAX_HEADER_BYTES:
        raise MalformedMessage(f"a frame begins with {magic!r} and {size} bytes of header")
    try:
        header = as_section(json.loads(bytes(read(size))))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"a header is no JSON: {error}") from error
    shapes = [_shape(shape) for shape in items(header, "arrays")]
    if sum(math.prod(shape) for shape in shapes) * _NUMBER_BYTES > most_array_bytes:
        raise MalformedMessage(f"arrays {shapes} are more than {most_array_bytes} bytes")
    return Message(header, tuple(_array(shape, read) for shape in shapes))


def _array(shape: tuple[int, ...], read: Callable[[int], Buffer]) -> FloatArray:
    count = math.prod(shape)
    data = read(count * _NUMBER_BYTES) if count else b""
    try:
        return np.frombuffer(data, _NUMBER).reshape(shape)
    except (ValueError, OverflowError) as error:
        # Too many dimensions, or beside one of 0 one that no memory has.
        raise MalformedMessage(f"there is no array of shape {shape}: {error}") from error


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        raise MalformedMessage(f"{value!r} is no shape")
    return tuple(value)
