"""The .proto files of the contract as descriptors, with their comments."""

from __future__ import annotations

import importlib.resources
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import TypeAlias

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "proto"
WELL_KNOWN = importlib.resources.files("grpc_tools") / "_proto"

Path_: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Commented:
    """One file and what is said of each of its elements, by its path in the file.

    `comments` stand right above an element, `detached` ones further up, an empty line between.
    """

    file: FileDescriptorProto
    comments: Mapping[Path_, str]
    detached: Mapping[Path_, Sequence[str]]

    def of(self, *path: int) -> str:
        """The comment as one line for a table's cell."""
        return one_line(self.comments.get(path, "")).replace("|", "\\|")

    def text(self, *path: int) -> str:
        """The comment as it is written; lines that are indented stay a table."""
        lines = [line.removeprefix(" ") for line in self.comments.get(path, "").splitlines()]
        blocks: list[str] = []
        for is_table, group in groupby(lines, key=lambda line: line.startswith("  ")):
            text = "\n".join(group).strip("\n")
            blocks.append(f"```\n{dedent(text)}\n```" if is_table else text)
        return "\n\n".join(block for block in blocks if block)


def one_line(text: str) -> str:
    """The words of a comment, each behind one space."""
    return " ".join(text.split())


def sources() -> list[str]:
    """Names of the contract's files, as they import each other."""
    return sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))


def compiled() -> FileDescriptorSet:
    """The contract's files, and before them those of Google that they import."""
    with tempfile.NamedTemporaryFile() as output:
        run_protoc(
            "--include_imports", "--include_source_info", f"--descriptor_set_out={output.name}"
        )
        return FileDescriptorSet.FromString(Path(output.name).read_bytes())


def commented(described: FileDescriptorSet) -> list[Commented]:
    """The contract's own files, by name."""
    names = set(sources())
    return [_commented(file) for file in described.file if file.name in names]


def run_protoc(*arguments: str) -> None:
    """Compiles the contract. Exits with protoc's status if that fails; it says why itself."""
    include = (f"-I{SOURCES}", f"-I{WELL_KNOWN}")
    status = protoc.main(["protoc", *include, *arguments, *sources()])
    if status:
        sys.exit(status)


def _commented(file: FileDescriptorProto) -> Commented:
    locations = file.source_code_info.location
    return Commented(
        file,
        {tuple(each.path): each.leading_comments or each.trailing_comments for each in locations},
        {tuple(each.path): tuple(each.leading_detached_comments) for each in locations},
    )
