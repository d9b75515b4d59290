"""Writes docs/contract.md, the contract's reference, from the comments of the .proto files.

python -m scripts.write.contract_reference
python -m scripts.write.contract_reference --check    # exit status 1 when the page is another
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from scripts.write import descriptors
from scripts.write.descriptors import ROOT, Commented, Path_

PAGE = ROOT / "docs" / "contract.md"
INTRODUCTION = """\
# The contract, `kakeya.v1`

Made from the comments of [proto/kakeya/v1](../proto/kakeya/v1) by
`python -m scripts.write.contract_reference`. Every error is a gRPC status with
`google.rpc.ErrorInfo(reason, "kakeya", metadata)`; the reasons, each with its remedy, are in
[troubleshooting.md](troubleshooting.md). Names are fixed; fields may be added, and an unknown one
is ignored. Units are suffixes: `_seconds`, `_bytes`, `_unix` (seconds since 1970).
"""
# Numbers of descriptor.proto, as paths in the source information use them.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _NESTED_ENUMS, _VALUES, _METHODS = 2, 3, 4, 2, 2
_PACKAGE = ".kakeya.v1."
_REASONS = "ErrorReason"
_REASON = re.compile(r"\b([A-Z]+(?:_[A-Z]+)+|DRAINING)\b")
# What applications call comes first.
_FIRST_FILES = (
    "kakeya/v1/runtime.proto",
    "kakeya/v1/capability.proto",
    "kakeya/v1/placement.proto",
)


def read() -> list[Commented]:
    """All files of the contract: those of `_FIRST_FILES`, then the others by name."""
    first = {name: index for index, name in enumerate(_FIRST_FILES)}
    return sorted(
        descriptors.commented(descriptors.compiled()),
        key=lambda each: (first.get(each.file.name, len(first)), each.file.name),
    )


def page(files: Sequence[Commented]) -> str:
    """The whole page: services first, then what they take and give, file by file."""
    parts = [INTRODUCTION, *_contents(files)]
    for commented in files:
        for index, service in enumerate(commented.file.service):
            parts += _service(commented, index, service)
    for commented in files:
        parts.append(f"\n## {Path(commented.file.name).name}\n")
        for index, enum in enumerate(commented.file.enum_type):
            parts += _enum(commented, (_ENUMS, index), enum, "")
        for index, message in enumerate(commented.file.message_type):
            parts += _message(commented, (_MESSAGES, index), message, "")
    return "\n".join(parts).rstrip() + "\n"


def _contents(files: Sequence[Commented]) -> Iterator[str]:
    yield "| service | what it is for |\n|---|---|"
    for commented in files:
        for index, service in enumerate(commented.file.service):
            said = commented.of(_SERVICES, index)
            yield f"| [{service.name}](#{service.name.lower()}) | {_first_sentence(said)} |"


def _first_sentence(text: str) -> str:
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]


def _service(commented: Commented, index: int, service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"\n## {service.name}\n\n{commented.text(_SERVICES, index)}\n"
    yield "| method | takes | gives | what it does | errors |\n|---|---|---|---|---|"
    for number, method in enumerate(service.method):
        said = commented.of(_SERVICES, index, _METHODS, number)
        does, _, errors = said.partition("Errors:")
        yield (
            f"| `{method.name}` | {_taken(method)} | {_given(method)} | {does.strip()} "
            f"| {_linked_reasons(errors.strip())} |"
        )


def _taken(method: MethodDescriptorProto) -> str:
    return f"{'stream of ' if method.client_streaming else ''}{_link(method.input_type)}"


def _given(method: MethodDescriptorProto) -> str:
    return f"{'stream of ' if method.server_streaming else ''}{_link(method.output_type)}"


def _linked_reasons(text: str) -> str:
    """The errors' text; its reasons, which stand in brackets, lead to their remedies."""
    return re.sub(
        r"\(([^()]*)\)",
        lambda found: "(" + _REASON.sub(_reason_link, found[1]) + ")",
        text,
    )


def _reason_link(found: re.Match[str]) -> str:
    return f"[{found[1]}](troubleshooting.md#{found[1].lower()})"


def _message(
    commented: Commented, path: Path_, message: DescriptorProto, within: str
) -> Iterator[str]:
    name = within + message.name
    yield f"\n### {name}\n\n{commented.text(*path)}\n"
    entries = {
        f"{_PACKAGE}{name}.{nested.name}": nested
        for nested in message.nested_type
        if nested.options.map_entry
    }
    if message.field:
        yield "| field | type | meaning |\n|---|---|---|"
    for index, field in enumerate(message.field):
        yield (
            f"| `{field.name}` = {field.number} | {_type(field, entries)}{_choice(message, field)} "
            f"| {commented.of(*path, _FIELDS, index)} |"
        )
    for index, enum in enumerate(message.enum_type):
        yield from _enum(commented, (*path, _NESTED_ENUMS, index), enum, f"{name}.")
    for index, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(commented, (*path, _NESTED, index), nested, f"{name}.")


def _type(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto]) -> str:
    entry = entries.get(field.type_name)
    if entry is not None:
        key, value = entry.field
        return f"map of {_plain(key)} to {_plain(value)}"
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    optional = field.proto3_optional
    return f"{'list of ' if repeated else ''}{'optional ' if optional else ''}{_plain(field)}"


def _plain(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _link(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _choice(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Tells that a field excludes others."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return f", one of `{message.oneof_decl[field.oneof_index].name}`"


def _enum(
    commented: Commented, path: Path_, enum: EnumDescriptorProto, within: str
) -> Iterator[str]:
    yield f"\n### {within}{enum.name}\n\n{commented.text(*path)}\n"
    if enum.name == _REASONS:
        yield "Its values are the headings of [troubleshooting.md](troubleshooting.md)."
        return
    yield "| value | meaning |\n|---|---|"
    for index, value in enumerate(enum.value):
        yield f"| `{value.name}` = {value.number} | {commented.of(*path, _VALUES, index)} |"


def _link(type_name: str) -> str:
    if not type_name.startswith(_PACKAGE):
        return f"`{type_name.removeprefix('.')}`"
    name = type_name.removeprefix(_PACKAGE)
    return f"[{name}](#{name.lower().replace('.', '')})"


def main() -> int:
    """Writes or checks the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    text = page(read())
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text("utf-8") == text:
            return 0
        print(f"{PAGE} is not what the .proto files say: run this script without --check")
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
