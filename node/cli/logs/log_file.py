"""The end of a log file, and its lines with their times."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 1 << 20
"""Of the file's end that is read; older lines are for a pager."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line with its time, in seconds since 1970: its own, or that of the line before it."""

    at_unix: float
    text: str


class LogTail:
    """The end of a log file, and what is written to it later. Close it.

    A file that has become another one is read to its end, then the one in its place.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file. Raises OSError."""
        self._path = path
        self._file: BinaryIO = path.open("rb")
        size = os.fstat(self._file.fileno()).st_size
        # The first line may be cut in two.
        self._skips_first = size > MOST_BYTES
        self._file.seek(max(0, size - MOST_BYTES))
        self._rest = b""
        self._at = 0.0

    def lines(self) -> list[LogLine]:
        """The whole lines that were written since the last call. Raises OSError."""
        is_replaced = self._is_replaced()
        lines = self._read()
        if is_replaced and not lines:
            self._file.close()
            self._file = self._path.open("rb")
            self._rest = b""
            lines = self._read()
        return lines

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _is_replaced(self) -> bool:
        """Whether there is another file in its place; not while there is none."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _read(self) -> list[LogLine]:
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            # Somebody emptied it.
            self._file.seek(0)
            self._rest = b""
        *whole, self._rest = (self._rest + self._file.read(MOST_BYTES)).split(b"\n")
        if self._skips_first and whole:
            self._skips_first = False
            del whole[0]
        return [self._line(each.decode("utf-8", errors="replace")) for each in whole if each]

    def _line(self, text: str) -> LogLine:
        self._at = time_of(text) or self._at
        return LogLine(self._at, text)


def time_of(line: str) -> float:
    """When a line was written, by its own words, in seconds since 1970; 0 without."""
    told = line[:40]
    if line.startswith("{"):
        try:
            told = str(json.loads(line).get("timestamp", ""))
        except ValueError:
            return 0.0
    match = _TIME.match(told)
    try:
        return datetime.fromisoformat(match[0]).timestamp() if match else 0.0
    except ValueError:
        return 0.0
