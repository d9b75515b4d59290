"""One line on a terminal that tells how far something is."""

from __future__ import annotations

import sys
from typing import TextIO

from kakeya_fleet.node.cli.terminal.output import shows_pictures


class StatusLine:
    """Written anew as it changes; gone at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False

    def show(self, text: str) -> None:
        """Writes the line anew."""
        self._is_shown = True
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()

    def clear(self) -> None:
        """Takes the line away."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False


def status_line(stream: TextIO | None = None) -> StatusLine | None:
    """A line on `stream`, stderr by default; None when nobody could watch it."""
    stream = sys.stderr if stream is None else stream
    return StatusLine(stream) if shows_pictures(stream) else None
