"""The values, as the contract's descriptors and `shapes` give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
)

from scripts.write.descriptors import Commented, one_line
from scripts.write.values.shapes import OTHER_ENUMS, SHAPES, Shape

# Numbers of descriptor.proto, as paths in the source information use them.
_MESSAGES, _ENUMS, _FIELDS, _VALUES = 4, 5, 2, 2
_PACKAGE = ".kakeya.v1."
_ABSENT = re.compile(r"\b(?:0|not set|unspecified)(?= (?:before|from|unless|when|while|with)\b)")
_WIDE = {
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_FIXED64,
}


class Kind(Enum):
    """What one item of a field is."""

    WHOLE = "whole number"
    REAL = "real number"
    FLAG = "flag"
    TEXT = "text"
    BYTES = "bytes, hexadecimal in the value"
    ENUM = "a name of an enum"
    VALUE = "a value"


_KINDS = {
    FieldDescriptorProto.TYPE_UINT32: Kind.WHOLE,
    FieldDescriptorProto.TYPE_UINT64: Kind.WHOLE,
    FieldDescriptorProto.TYPE_DOUBLE: Kind.REAL,
    FieldDescriptorProto.TYPE_FLOAT: Kind.REAL,
    FieldDescriptorProto.TYPE_BOOL: Kind.FLAG,
    FieldDescriptorProto.TYPE_STRING: Kind.TEXT,
    FieldDescriptorProto.TYPE_BYTES: Kind.BYTES,
    FieldDescriptorProto.TYPE_ENUM: Kind.ENUM,
    FieldDescriptorProto.TYPE_MESSAGE: Kind.VALUE,
}


@dataclass(frozen=True)
class Shown:
    """What the SDKs show of the contract: `message` of its `file`, by their own `name`.

    `file` is without its ending.
    """

    file: str
    message: str
    name: str
    doc: str


@dataclass(frozen=True)
class Names(Shown):
    """An enum with its names and their comments: ROLE_VERIFIER is ("VERIFIER", comment)."""

    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Field:
    """One field of a value.

    `path` leads to it from the message. `type` names the enum or value that it is of.
    `none` tells whether it can be None, `has_default` whether it may be left out,
    `wide` whether it has 64 bits, `big` whether all of them count; `present` whether the
    message tells a 0 from nothing.
    """

    name: str
    path: tuple[str, ...]
    kind: Kind
    type: str
    doc: str
    repeated: bool
    wide: bool
    present: bool = False
    none: bool = False
    big: bool = False
    has_default: bool = False


@dataclass(frozen=True)
class Value(Shown):
    """A message that the SDKs show as a value; `flat` are fields that it has none of itself.

    Each of `flat` is a field's name, its message's file and that message.
    """

    tag: str
    fields: tuple[Field, ...]
    flat: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Contract:
    """All that is written down, and the words of its comments that mean something else there.

    `members` are the contract's names of enums' values, such as ROLE_VERIFIER, by which the
    SDKs' follow; `fields` all fields' names that have an underscore, `renamed` values' names
    by their messages'.
    """

    enums: tuple[Names, ...]
    values: tuple[Value, ...]
    members: Mapping[str, str]
    fields: frozenset[str]
    renamed: Mapping[str, str]

    @property
    def modules(self) -> list[str]:
        """The contract's files that something is shown of."""
        shown: list[Shown] = [*self.enums, *self.values]
        return sorted({each.file for each in shown})


@dataclass(frozen=True)
class _Message:
    file: str
    described: DescriptorProto
    doc: str
    fields: Mapping[str, tuple[FieldDescriptorProto, str]]


def contract(files: Sequence[Commented]) -> Contract:
    """The contract by `shapes`. Raises ValueError where the two do not fit."""
    messages = {each.described.name: each for file in files for each in _messages(file)}
    enums = {each.message: each for file in files for each in _enums(file)}
    values = tuple(_value(messages, name, shape) for name, shape in SHAPES.items())
    used = {each.type for value in values for each in value.fields if each.kind is Kind.ENUM}
    shown = [each for each in enums.values() if each.name in used or each.message in OTHER_ENUMS]
    renamed: list[Shown] = [*values, *shown]
    return Contract(
        enums=tuple(shown),
        values=values,
        members={
            f"{_prefix(each.message)}{member}": member.lower()
            for each in enums.values()
            for member, _ in each.members
        },
        fields=frozenset(
            name for message in messages.values() for name in message.fields if "_" in name
        ),
        renamed={each.message: each.name for each in renamed},
    )


def _messages(file: Commented) -> Iterator[_Message]:
    for place, message in enumerate(file.file.message_type):
        fields = {
            each.name: (each, _comment(file, _MESSAGES, place, _FIELDS, index))
            for index, each in enumerate(message.field)
        }
        doc = _comment(file, _MESSAGES, place)
        yield _Message(Path(file.file.name).stem, message, doc, fields)


def _enums(file: Commented) -> Iterator[Names]:
    for place, enum in enumerate(file.file.enum_type):
        yield Names(
            file=Path(file.file.name).stem,
            message=enum.name,
            name=enum.name,
            doc=_comment(file, _ENUMS, place),
            members=tuple(_members(file, place, enum)),
        )


def _members(file: Commented, place: int, enum: EnumDescriptorProto) -> Iterator[tuple[str, str]]:
    for index, value in enumerate(enum.value):
        if value.number:
            doc = _comment(file, _ENUMS, place, _VALUES, index)
            # What follows the first sentence is for who sends it.
            yield (
                value.name.removeprefix(_prefix(enum.name)),
                doc.partition(". ")[0].rstrip(".") + ".",
            )


def _prefix(enum: str) -> str:
    """What the names of an enum's values begin with: ROLE_ of Role."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", enum).upper() + "_"


def _comment(file: Commented, *path: int) -> str:
    return one_line(file.comments.get(path, ""))


def _value(messages: Mapping[str, _Message], name: str, shape: Shape) -> Value:
    message = messages[name]
    fields = list(_ordered(_fields(messages, message, shape), shape.after))
    known = {each.name for each in fields}
    told = {*shape.none, *shape.after, *shape.docs, *shape.big, shape.defaults_from} - {""}
    if not told <= known:
        raise ValueError(f"{name} has no {', '.join(sorted(told - known))}: see shapes.py")
    first = next((at for at, each in enumerate(fields) if each.name == shape.defaults_from), None)
    return Value(
        file=message.file,
        message=name,
        name=shape.name or name,
        doc=message.doc,
        tag=shape.tag,
        fields=tuple(
            replace(each, has_default=first is not None and at >= first)
            for at, each in enumerate(fields)
        ),
        flat=tuple(_flat(messages, message, each) for each in shape.flat),
    )


def _flat(messages: Mapping[str, _Message], message: _Message, field: str) -> tuple[str, str, str]:
    inner = messages[_local(message.fields[field][0].type_name)]
    return field, inner.file, inner.described.name


def _fields(messages: Mapping[str, _Message], message: _Message, shape: Shape) -> Iterator[Field]:
    for name, (described, doc) in message.fields.items():
        if name in shape.omitted:
            continue
        if name not in shape.flat:
            yield _shaped(_field(described, (name,), name, doc), shape)
            continue
        inner = messages[_local(described.type_name)]
        for each, (its, text) in inner.fields.items():
            flat = _field(its, (name, each), shape.flat[name] + each, text)
            yield _shaped(flat, shape)


def _field(described: FieldDescriptorProto, path: tuple[str, ...], name: str, doc: str) -> Field:
    kind = _KINDS.get(described.type)
    if kind is None:
        raise ValueError(f"{name} is of a type that no value has: {described.type}")
    repeated = described.label == FieldDescriptorProto.LABEL_REPEATED
    wide = described.type in _WIDE
    if repeated and (wide or kind is Kind.BYTES):
        raise ValueError(f"{name} is a list of what no value has lists of")
    local = _local(described.type_name)
    named = SHAPES[local].name or local if kind is Kind.VALUE and local in SHAPES else local
    return Field(
        name=name,
        path=path,
        kind=kind,
        type=named,
        doc=doc,
        repeated=repeated,
        wide=wide,
        present=kind is Kind.VALUE or described.proto3_optional,
    )


def _shaped(field: Field, shape: Shape) -> Field:
    doc = shape.docs.get(field.name, field.doc)
    none = field.name in shape.none
    if none and not _ABSENT.search(doc):
        raise ValueError(f"the comment of {field.name} does not say when there is none: {doc}")
    return replace(
        field,
        doc=_ABSENT.sub("None", doc) if none else doc,
        none=none,
        big=field.name in shape.big,
    )


def _ordered(fields: Iterable[Field], after: Mapping[str, str]) -> Iterator[Field]:
    given = list(fields)
    moved = {each.name: each for each in given if each.name in after}
    for each in given:
        if each.name in moved:
            continue
        yield each
        yield from (moved[name] for name, other in after.items() if other == each.name)


def _local(type_name: str) -> str:
    return type_name.removeprefix(_PACKAGE)
