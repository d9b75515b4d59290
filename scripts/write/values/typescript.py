"""The values and converters of the TypeScript SDK."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.write.values.model import Contract, Field, Kind, Names, Value
from scripts.write.values.prose import WIDTH, spoken, wrapped

_TYPES = {
    Kind.WHOLE: "number",
    Kind.REAL: "number",
    Kind.FLAG: "boolean",
    Kind.TEXT: "string",
    Kind.BYTES: "string",
}


def values(contract: Contract) -> str:
    """The module of names and interfaces."""
    lines = [
        "/**",
        " * Values of the contract. Made by `make stubs` from proto/.",
        " *",
        ' * The name "unknown" is newer than this client, or not given.',
        " */",
    ]
    for enum in contract.enums:
        lines += ["", *_names(enum, contract)]
    for value in contract.values:
        lines += ["", *_interface(value, contract)]
    return "\n".join(lines) + "\n"


def wire(contract: Contract) -> str:
    """The module of converters, one an enum and one a value."""
    lines = [
        "/** From messages of `kakeya.v1` to values. Made by `make stubs` from proto/. */",
        "",
        'import { create } from "@bufbuild/protobuf";',
        "",
        'import { enumName } from "../wire/numbers.js";',
        *(
            f'import * as {module}Pb from "./kakeya/v1/{module}_pb.js";'
            for module in contract.modules
        ),
        'import * as values from "./values.js";',
    ]
    for enum in contract.enums:
        lines += ["", *_enum_converter(enum)]
    always = {
        each.type
        for value in contract.values
        for each in value.fields
        if each.kind is Kind.VALUE and not each.repeated and not each.none
    }
    for value in contract.values:
        lines += ["", *_converter(value, always=value.name in always)]
    return "\n".join(lines) + "\n"


def _names(enum: Names, contract: Contract) -> Iterator[str]:
    yield "/**"
    yield from wrapped(spoken(enum.doc, contract, _camel), " * ")
    yield " *"
    for name, doc in enum.members:
        first, *others = wrapped(f'"{name.lower()}": {spoken(doc, contract, _camel)}', " *   ")
        yield first.replace(" *   ", " * - ", 1)
        yield from others
    yield " */"
    listed = ", ".join(f'"{name.lower()}"' for name, _ in enum.members)
    yield f"export const {_constant(enum)} = [{listed}] as const;"
    yield f'export type {enum.name} = (typeof {_constant(enum)})[number] | "unknown";'


def _interface(value: Value, contract: Contract) -> Iterator[str]:
    yield from _comment(spoken(value.doc, contract, _camel), "")
    yield f"export interface {value.name} {{"
    if value.tag:
        yield f'  readonly type: "{value.tag}";'
    for field in value.fields:
        yield from _comment(spoken(_null(field), contract, _camel), "  ")
        yield f"  readonly {_camel(field.name)}: {_type(field)};"
    yield "}"


def _null(field: Field) -> str:
    return field.doc.replace("None", "null") if field.none else field.doc


def _type(field: Field) -> str:
    item = "bigint" if field.big else _TYPES.get(field.kind, field.type)
    if field.repeated:
        return f"readonly {item}[]"
    return f"{item} | null" if field.none else item


def _enum_converter(enum: Names) -> Iterator[str]:
    yield f"/** The `{enum.name}` that a number of the contract stands for. */"
    yield f"export function {_function(enum.name)}(number: number): values.{enum.name} {{"
    schema = f"{enum.file}Pb.{enum.message}Schema"
    yield f"  return enumName({schema}, number, values.{_constant(enum)});"
    yield "}"


def _converter(value: Value, *, always: bool) -> Iterator[str]:
    """With `always` a message that was not sent is one whose fields have their defaults."""
    message = f"{value.file}Pb.{value.message}"
    taken = f"message = create({message}Schema)" if always else f"message: {message}"
    yield f"/** The `{value.name}` that a message tells of. */"
    yield f"export function {_function(value.name)}({taken}): values.{value.name} {{"
    for name, file, inner in value.flat:
        yield f"  const {{ {_camel(name)} = create({file}Pb.{inner}Schema) }} = message;"
    yield "  return {"
    if value.tag:
        yield f'    type: "{value.tag}",'
    for field in value.fields:
        yield f"    {_camel(field.name)}: {_converted(field)},"
    yield "  };"
    yield "}"


def _converted(field: Field) -> str:
    given = ".".join(map(_camel, field.path if len(field.path) > 1 else ("message", *field.path)))
    if field.repeated:
        plain = field.kind not in (Kind.ENUM, Kind.VALUE)
        return given if plain else f"{given}.map({_function(field.type)})"
    if not field.none:
        return _item(field, given)
    if field.present and field.kind is not Kind.VALUE:
        # Of what is given, 0 is a number.
        item = _item(field, given)
        return f"{item} ?? null" if item == given else f"{given} === undefined ? null : {item}"
    return f"{given} ? {_item(field, given)} : null"


def _item(field: Field, given: str) -> str:
    match field.kind:
        case Kind.ENUM | Kind.VALUE:
            return f"{_function(field.type)}({given})"
        case Kind.BYTES:
            return f'Buffer.from({given}).toString("hex")'
        case _:
            return f"Number({given})" if field.wide and not field.big else given


def _comment(text: str, indent: str) -> Iterator[str]:
    if len(indent) + len(text) + 7 <= WIDTH:
        yield f"{indent}/** {text} */"
        return
    yield f"{indent}/**"
    yield from wrapped(text, f"{indent} * ")
    yield f"{indent} */"


def _constant(enum: Names) -> str:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper()
    if name.endswith("Y"):
        return name[:-1] + "IES"
    return name + ("ES" if name.endswith("S") else "S")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _function(name: str) -> str:
    return name[0].lower() + name[1:]
