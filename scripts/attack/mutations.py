"""Messages that are nearly right: one of them becomes bytes that a peer could send.

Values are changed by what fields are: the bounds of their type, numbers that are none, counts,
unknown enums, the other member of a oneof. Bytes are changed by what the wire format is:
fields of another type, cut, doubled, out of order, longer than they say, text that is no UTF-8.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scripts.attack.wire_format import (
    WireType,
    field_of,
    fields_of,
    longer_than_it_is,
    packed_doubles,
)

INT32, INT64, UINT32, UINT64 = 1 << 31, 1 << 63, 1 << 32, 1 << 64
BOUNDS: dict[int, tuple[int, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, INT32 - 1, -INT32),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, INT64 - 1, -INT64, INT32),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2, 63, 64, 65, 4096, INT32 - 1, INT32, UINT32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 8191, 8192, INT32, UINT32, INT64 - 1, INT64, UINT64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 4, 99, -1, INT32 - 1),
    FieldDescriptor.CPPTYPE_BOOL: (0, 1),
}
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, -1e38, math.inf, -math.inf, math.nan)
TEXTS = (
    *("", " ", "\0", "\n", "\x1b]0;x\x07\x1b[2J", "../../etc/passwd", "tiny", "ngram", "-1"),
    *(
        "%s%n",
        "𝕏" * 40,
        "é" * 129,
        "x" * 4096,
        "0" * 64,
        "127.0.0.1:1",
        "[::1]:0",
        "127.0.0.1:99999",
    ),
)
COUNTS = (0, 1, 2, 63, 64, 65, 256, 257, 1024, 1025, 5000)
"""Of repeated fields."""
NO_UTF8 = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\x80")
MOST_BYTES = 1 << 16
"""Of a mutated message, unless it was longer before: larger ones are attacks of their own."""
CHANGES_A_MESSAGE = 3

Values = MutableSequence[Any]
Sent = TypeVar("Sent")


class Mutator:
    """Seeded: the same messages in the same order become the same bytes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._value_changes: tuple[Callable[[Message], None], ...] = (
            *(self._change_field,) * 4,
            self._clear_field,
            self._resize_field,
            self._other_of_oneof,
        )
        self._byte_changes: tuple[Callable[[bytes, type[Message]], bytes], ...] = (
            self._flip,
            self._cut,
            self._put_in,
            self._double,
            self._shuffle_fields,
            self._repeat_field,
            self._foreign_field,
            self._wrong_type,
            self._lying_length,
            self._no_utf8,
        )

    def mutated(self, message: Message) -> bytes:
        """Bytes of a message like `message`, with one to three things wrong. It stays as it is."""
        changed = self.changed(message)
        found = changed.SerializeToString()
        if self._rng.random() < 0.4:
            for _ in range(self._rng.randint(1, CHANGES_A_MESSAGE)):
                found = self._rng.choice(self._byte_changes)(found, type(message))
        return found[: max(MOST_BYTES, message.ByteSize())]

    def changed(self, message: Message) -> Message:
        """A copy of which values are changed, but which any library writes."""
        copy = type(message)()
        copy.CopyFrom(message)
        for _ in range(self._rng.randint(0, CHANGES_A_MESSAGE)):
            self._rng.choice(self._value_changes)(self._some_part(copy))
        return copy

    def unparsable(self, kind: type[Message]) -> bytes:
        """Bytes that are no message at all."""
        number = self._rng.randint(1, 30)
        fields = _fields_of(kind)
        number = self._rng.choice(fields).number if fields else number
        return longer_than_it_is(number, self._rng.randbytes(3), self._rng.randint(4, 1 << 40))

    def damaged(self, whole: bytes) -> bytes:
        """`whole` with bits flipped, bytes cut, put in or doubled; for bytes of any format."""
        found = whole
        changes = (self._flip, self._cut, self._put_in, self._double)
        for _ in range(self._rng.randint(1, 4)):
            found = self._rng.choice(changes)(found, Message)
        return found

    def _some_part(self, message: Message) -> Message:
        """The message itself, or one that it holds at any depth."""
        parts = [message]
        for part in parts:
            for field, value in part.ListFields():
                if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE or _is_map(field):
                    continue
                parts += list(value)[:8] if _is_repeated(field) else [value]
        return self._rng.choice(parts)

    def _some_field(self, message: Message) -> FieldDescriptor | None:
        fields = _fields_of(message)
        return self._rng.choice(fields) if fields else None

    def _change_field(self, message: Message) -> None:
        field = self._some_field(message)
        if field is None:
            return
        if _is_map(field):
            self._change_map(message, field)
        elif _is_repeated(field):
            values: Values = getattr(message, field.name)
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                cast("Any", values).add()
            elif values:
                values[self._rng.randrange(len(values))] = self._value_of(field)
            else:
                values.append(self._value_of(field))
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, self._value_of(field))

    def _change_map(self, message: Message, field: FieldDescriptor) -> None:
        entry: Any = field.message_type
        key, value = (entry.fields_by_name[name] for name in ("key", "value"))
        for _ in range(self._rng.choice(COUNTS[:5])):
            getattr(message, field.name)[self._value_of(key)] = self._value_of(value)

    def _clear_field(self, message: Message) -> None:
        field = self._some_field(message)
        if field is not None:
            message.ClearField(field.name)

    def _resize_field(self, message: Message) -> None:
        repeated = [
            field for field in _fields_of(message) if _is_repeated(field) and not _is_map(field)
        ]
        if not repeated:
            return self._change_field(message)
        field = self._rng.choice(repeated)
        count = self._rng.choice(COUNTS)
        values: Any = getattr(message, field.name)
        kept = list(values)
        del values[:]
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            kept = kept or [values.add()]
            del values[:]
            values.extend(kept[index % len(kept)] for index in range(min(count, 300)))
        else:
            kept = kept or [self._value_of(field)]
            values.extend(kept[index % len(kept)] for index in range(count))
        return None

    def _other_of_oneof(self, message: Message) -> None:
        oneofs = message.DESCRIPTOR.oneofs
        if not oneofs:
            return self._change_field(message)
        oneof: Any = self._rng.choice(oneofs)
        field = self._rng.choice(oneof.fields)
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, self._value_of(field))
        return None

    def _value_of(self, field: FieldDescriptor) -> int | float | str | bytes:
        kind = field.cpp_type
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self._rng.choice(FLOATS)
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return self._rng.randbytes(self._rng.choice((0, 1, 8, 31, 32, 33, 64, 4096)))
            return self._rng.choice(TEXTS)
        return self._rng.choice(BOUNDS[kind])

    def _flip(self, whole: bytes, _kind: type[Message]) -> bytes:
        if not whole:
            return whole
        found = bytearray(whole)
        found[self._rng.randrange(len(found))] ^= 1 << self._rng.randrange(8)
        return bytes(found)

    def _cut(self, whole: bytes, _kind: type[Message]) -> bytes:
        at = self._rng.randrange(len(whole) + 1)
        return whole[:at] + whole[at + self._rng.choice((1, 2, 4, 8, len(whole))) :]

    def _put_in(self, whole: bytes, _kind: type[Message]) -> bytes:
        at = self._rng.randrange(len(whole) + 1)
        return whole[:at] + self._rng.randbytes(self._rng.randint(1, 8)) + whole[at:]

    def _double(self, whole: bytes, _kind: type[Message]) -> bytes:
        at = self._rng.randrange(len(whole) + 1)
        return whole[: at + 16] + whole[at:]

    def _shuffle_fields(self, whole: bytes, _kind: type[Message]) -> bytes:
        fields = self._fields(whole)
        self._rng.shuffle(fields)
        return b"".join(fields)

    def _repeat_field(self, whole: bytes, _kind: type[Message]) -> bytes:
        fields = self._fields(whole)
        return whole + self._rng.choice(fields) * self._rng.choice((1, 2, 64)) if fields else whole

    def _foreign_field(self, whole: bytes, _kind: type[Message]) -> bytes:
        number = self._rng.choice((31, 1000, 19_000, (1 << 29) - 1, 0))
        return whole + self._any_field(number)

    def _wrong_type(self, whole: bytes, kind: type[Message]) -> bytes:
        return whole + self._any_field(self._known_number(kind))

    def _lying_length(self, whole: bytes, kind: type[Message]) -> bytes:
        claimed = self._rng.choice((1, 127, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1))
        return whole + longer_than_it_is(self._known_number(kind), self._rng.randbytes(2), claimed)

    def _no_utf8(self, whole: bytes, kind: type[Message]) -> bytes:
        texts = [
            field.number for field in _fields_of(kind) if field.type == FieldDescriptor.TYPE_STRING
        ]
        number = self._rng.choice(texts) if texts else self._known_number(kind)
        return whole + field_of(number, WireType.BYTES, self._rng.choice(NO_UTF8))

    def _any_field(self, number: int) -> bytes:
        content = self._rng.choice(
            (b"", self._rng.randbytes(9), packed_doubles(math.nan, math.inf))
        )
        return field_of(number, self._rng.choice(list(WireType)), content)

    def _known_number(self, kind: type[Message]) -> int:
        fields = _fields_of(kind)
        return self._rng.choice(fields).number if fields else 1

    def _fields(self, whole: bytes) -> list[bytes]:
        try:
            return list(fields_of(whole))
        except (ValueError, IndexError):
            return []


def disordered(rng: random.Random, messages: Sequence[Sent]) -> list[Sent]:
    """A stream whose messages are in another order: swapped, doubled, left out, or cut short."""
    found = list(messages)
    if len(found) < 2:
        return found * rng.randint(0, 2)
    match rng.randrange(4):
        case 0:
            rng.shuffle(found)
        case 1:
            at = rng.randrange(len(found))
            found.insert(at, found[at])
        case 2:
            del found[rng.randrange(len(found))]
        case _:
            del found[rng.randrange(len(found)) :]
    return found


def _fields_of(kind: type[Message] | Message) -> Sequence[FieldDescriptor]:
    return cast("Sequence[FieldDescriptor]", kind.DESCRIPTOR.fields)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    kind: Any = field.message_type
    return field.is_repeated and kind is not None and bool(kind.GetOptions().map_entry)
