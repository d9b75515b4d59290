"""The values and converters of the Python SDK."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scripts.write.values.model import Contract, Field, Kind, Names, Value
from scripts.write.values.prose import WIDTH, paragraphs, spoken, wrapped

_TYPES = {
    Kind.WHOLE: "int",
    Kind.REAL: "float",
    Kind.FLAG: "bool",
    Kind.TEXT: "str",
    Kind.BYTES: "str",
}
_DEFAULTS = {
    Kind.WHOLE: "0",
    Kind.REAL: "0.0",
    Kind.FLAG: "False",
    Kind.TEXT: '""',
    Kind.BYTES: '""',
}


def values(contract: Contract) -> str:
    """The module of enums and frozen dataclasses."""
    lines = [
        '"""Values of the contract. Made by `make stubs` from proto/."""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass",
        "from enum import StrEnum",
    ]
    for enum in contract.enums:
        lines += ["", "", *_enum(enum, contract)]
    for value in contract.values:
        lines += ["", "", *_dataclass(value, contract)]
    return "\n".join(lines) + "\n"


def wire(contract: Contract) -> str:
    """The module of converters, one an enum and one a value."""
    lines = [
        '"""From messages of `kakeya.v1` to values. Made by `make stubs` from proto/."""',
        "",
        "from __future__ import annotations",
        "",
        "from kakeya.enum_names import enum_value",
        "from kakeya.generated import values",
        f"from kakeya.v1 import {', '.join(f'{module}_pb2' for module in contract.modules)}",
    ]
    for enum in contract.enums:
        lines += ["", "", *_enum_converter(enum)]
    for value in contract.values:
        lines += ["", "", *_converter(value)]
    return "\n".join(lines) + "\n"


def _enum(enum: Names, contract: Contract) -> Iterator[str]:
    yield f"class {enum.name}(StrEnum):"
    yield from _class_docstring(spoken(enum.doc, contract, str))
    for name, doc in enum.members:
        yield f'    {name} = "{name.lower()}"'
        yield from _attribute_docstring(spoken(doc, contract, str))
    yield '    UNKNOWN = "unknown"'
    yield from _attribute_docstring("Newer than this client, or not given.")


def _dataclass(value: Value, contract: Contract) -> Iterator[str]:
    yield "@dataclass(frozen=True, slots=True)"
    yield f"class {value.name}:"
    yield from _class_docstring(spoken(value.doc, contract, str))
    for field in value.fields:
        default = f" = {_default(field)}" if field.has_default else ""
        yield f"    {field.name}: {_type(field)}{default}"
        yield from _attribute_docstring(spoken(field.doc, contract, str))


def _type(field: Field) -> str:
    item = _TYPES.get(field.kind, field.type)
    if field.repeated:
        return f"tuple[{item}, ...]"
    return f"{item} | None" if field.none else item


def _default(field: Field) -> str:
    if field.repeated:
        return "()"
    if field.none:
        return "None"
    if field.kind is Kind.ENUM:
        return f"{field.type}.UNKNOWN"
    if field.kind is Kind.VALUE:
        raise ValueError(f"{field.name} is a value and has no default")
    return _DEFAULTS[field.kind]


def _enum_converter(enum: Names) -> Iterator[str]:
    descriptor = f"{enum.file}_pb2.{enum.message}.DESCRIPTOR"
    yield f"def {_function(enum.name)}(number: int) -> values.{enum.name}:"
    yield f'    """The `{enum.name}` that a number of the contract stands for."""'
    yield f"    return enum_value(values.{enum.name}, {descriptor}, number)"


def _converter(value: Value) -> Iterator[str]:
    message = f"{value.file}_pb2.{value.message}"
    yield f"def {_function(value.name)}(message: {message}) -> values.{value.name}:"
    yield f'    """The `{value.name}` that a message tells of."""'
    yield f"    return values.{value.name}("
    for field in value.fields:
        yield f"        {field.name}={_converted(field)},"
    yield "    )"


def _converted(field: Field) -> str:
    *holder, name = field.path
    of = ".".join(("message", *holder))
    given = f"{of}.{name}"
    if field.repeated:
        plain = field.kind not in (Kind.ENUM, Kind.VALUE)
        return f"tuple({given})" if plain else f"tuple({_item(field, 'each')} for each in {given})"
    if not field.none:
        return _item(field, given)
    if field.present:
        return f'{_item(field, given)} if {of}.HasField("{name}") else None'
    return f"{_item(field, given)} if {given} else None"


def _item(field: Field, given: str) -> str:
    match field.kind:
        case Kind.ENUM | Kind.VALUE:
            return f"{_function(field.type)}({given})"
        case Kind.BYTES:
            return f"{given}.hex()"
        case _:
            return given


def _function(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _class_docstring(text: str) -> Iterator[str]:
    if len(text) + 10 <= WIDTH:
        yield f'    """{text}"""'
    else:
        yield from _long_docstring(paragraphs(text))
    yield ""


def _attribute_docstring(text: str) -> Iterator[str]:
    if len(text) + 10 <= WIDTH:
        yield f'    """{text}"""'
    else:
        yield from _long_docstring([text])


def _long_docstring(texts: Iterable[str]) -> Iterator[str]:
    blocks = [wrapped(text, "    ") for text in texts]
    # The quotes may take the first line over its width.
    blocks[0] = wrapped('"""' + " ".join(line.strip() for line in blocks[0]), "    ")
    for at, block in enumerate(blocks):
        if at:
            yield ""
        yield from block
    yield '    """'
