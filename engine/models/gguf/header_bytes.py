"""The bytes of a GGUF header, taken one after another and never more than there may be."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from kakeya_fleet.engine.errors import GgufInvalid

MOST_HEADER_BYTES = 128 << 20
"""A vocabulary of 262,144 tokens with its merges takes some 20 MiB."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class HeaderBytes:
    """Reads on in `file`, the file at `path`. Raises `GgufInvalid` at its end and at the limit."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self.path = path
        self.size = os.fstat(file.fileno()).st_size
        """Bytes of the whole file."""
        self.position = 0
        """Bytes that were taken."""

    @property
    def left(self) -> int:
        """Bytes that the header may still have."""
        return min(self.size, MOST_HEADER_BYTES) - self.position

    def invalid(self, words: str) -> GgufInvalid:
        """The refusal of this file: `words` go on after its name."""
        return GgufInvalid(f"{self.path} {words}", path=str(self.path))

    def take(self, byte_count: int) -> bytes:
        """The next bytes."""
        if byte_count > self.left:
            if self.size > MOST_HEADER_BYTES:
                raise self.invalid(f"has a header of more than {MOST_HEADER_BYTES >> 20} MiB")
            raise self.invalid("breaks off within its header; fetch it again")
        found = self._file.read(byte_count)
        if len(found) != byte_count:
            raise self.invalid("became shorter while it was read")
        self.position += byte_count
        return found

    def u32(self) -> int:
        """The next four bytes as a number."""
        found: int = _U32.unpack(self.take(4))[0]
        return found

    def u64(self) -> int:
        """The next eight bytes as a number."""
        found: int = _U64.unpack(self.take(8))[0]
        return found

    def count(self, what: str, most: int) -> int:
        """The next number, at most `most` of `what`."""
        found = self.u64()
        if found > most:
            raise self.invalid(f"claims {found:,} {what}, and at most {most:,} are read")
        return found

    def text(self, most_bytes: int, what: str) -> str:
        """The next string, of at most so many bytes."""
        length = self.u64()
        if length > most_bytes:
            raise self.invalid(
                f"has {what} of {length:,} bytes, and at most {most_bytes:,} are read"
            )
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.invalid(f"has {what} that is not UTF-8") from error
