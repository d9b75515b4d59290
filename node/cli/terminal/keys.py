"""Keys as they are pressed, without waiting for the end of a line."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[Z": "backtab",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "escape",
    " ": "space",
}
# The longest sequence that a terminal sends for one key.
_LONGEST = 8


def keys_in(text: str) -> list[str]:
    """Names of the keys in what a terminal sent; a letter is its own name.

    Sequences that have no name here are passed over whole.
    """
    keys = []
    while text:
        length = _sequence_length(text)
        sequence, text = text[:length], text[length:]
        name = _NAMES.get(sequence, sequence if len(sequence) == 1 else "")
        if name:
            keys.append(name)
    return keys


def _sequence_length(text: str) -> int:
    """How many characters the first key of `text` takes."""
    if text[0] != "\x1b" or len(text) == 1 or text[1] not in "[O":
        return 1
    for index in range(2, min(len(text), _LONGEST)):
        if text[index].isalpha() or text[index] == "~":
            return index + 1
    return min(len(text), _LONGEST)


class Keys:
    """Hands every key to `take` while it is entered; does nothing where stdin is no terminal.

    Signals stay signals: Ctrl-C is no key. Entered on the event loop's thread.
    """

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._descriptor: int | None = None
        self._before: list[object] = []

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            import termios
            import tty

            self._descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self.restore()

    def restore(self) -> None:
        """Gives the terminal's lines back; safe from any thread, any number of times."""
        if self._descriptor is not None:
            import termios

            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)  # type: ignore[arg-type]

    def _read(self) -> None:
        if self._descriptor is None:
            return
        data = os.read(self._descriptor, 1024)
        if not data:
            # The terminal is gone; nobody presses a key any more.
            asyncio.get_running_loop().remove_reader(self._descriptor)
            return
        for key in keys_in(self._decoder.decode(data)):
            self._take(key)
