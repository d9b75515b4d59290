"""GGUF files byte by byte, so that each part of one can be wrong by itself."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

F32, TEXT, ARRAY, U32 = 0, 8, 9, 4
"""F32 is a type of tensors, the others of values."""


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def whole(key: str, value: int) -> bytes:
    return entry(key, U32, struct.pack("<I", value))


def texts(key: str, *values: str) -> bytes:
    """An array of strings."""
    head = struct.pack("<IQ", TEXT, len(values))
    return entry(key, ARRAY, head + b"".join(text(value) for value in values))


def tensor(name: str, *sizes: int, kind: int = F32, start: int = 0) -> bytes:
    """An entry of the table of tensors."""
    shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + shape + struct.pack("<IQ", kind, start)


@dataclass
class Raw:
    """A file: a header of its parts, then `data` from the next multiple of 32 on."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    entry_count: int | None = None
    tensor_count: int | None = None

    def content(self) -> bytes:
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        entry_count = len(self.entries) if self.entry_count is None else self.entry_count
        head = self.magic + struct.pack("<IQQ", self.version, tensor_count, entry_count)
        head += b"".join(self.entries) + b"".join(self.tensors)
        return head + b"\0" * (-len(head) % 32) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path
