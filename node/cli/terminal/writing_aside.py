"""An agent's own output, written by a thread for each stream: nobody's reading is waited for.

A pipe that nobody reads is full after 64 KiB, a terminal may be stopped (Ctrl-S), a disk may hang:
who prints would stand still with it, and with him the event loop. Here lines wait, as many bytes
as there is room for; what finds no room is lost, and counted.
"""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO, RawIOBase, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from kakeya_fleet.node.cli.terminal.streams import OutputLost, error_file, output_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_WAITING_BYTES = 1 << 20
"""Of a stream: some 4,000 events or lines of the log."""
CLOSING_SECONDS = 2.0
"""What a reader who is slow may delay the end of the process by."""


class OutputAside(RawIOBase):
    """Standard output: what is lost raises, so that the log tells. Any thread may write."""

    def __init__(self, file: FileIO) -> None:
        """`file` is written by the thread alone from now on, and is not closed by it."""
        super().__init__()
        self.lost_count = 0
        self._file = file
        self._failure: OSError | OutputLost | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._write_on, name=f"output {file.fileno()}", daemon=True
        )
        self._thread.start()

    def writable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """The descriptor that is written."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether a terminal is written."""
        return self._file.isatty()

    def write(self, data: ReadableBuffer, /) -> int:
        """Takes `data`, or loses all of it, and never waits.

        Raises `OutputLost` when there was no room for it, and as long as the last write of the
        thread failed, what that raised: `OutputLost`, BrokenPipeError.
        """
        chunk = bytes(data)
        with self._changed:
            has_room = self._waiting_bytes + len(chunk) <= MAX_WAITING_BYTES
            if has_room:
                self._waiting.append(chunk)
                self._waiting_bytes += len(chunk)
                self._changed.notify_all()
            else:
                self.lost_count += 1
            failure = self._failure
        self._answer(has_room=has_room, failure=failure)
        return len(chunk)

    def wait_written(self, seconds: float) -> bool:
        """Whether all that was taken was handed to the file within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting_bytes, seconds)

    def _answer(self, *, has_room: bool, failure: OSError | OutputLost | None) -> None:
        if failure is not None:
            raise failure
        if not has_room:
            raise OutputLost(OSError(errno.EAGAIN, "nobody reads it"))

    def _head(self) -> bytes:
        """What is written before the next chunk."""
        return b""

    def _write_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                chunk = self._waiting.popleft()
            failure = self._written(self._head() + chunk)
            with self._changed:
                self._failure = failure
                self._waiting_bytes -= len(chunk)
                self._changed.notify_all()

    def _written(self, whole: bytes) -> OSError | OutputLost | None:
        """Why the rest of `whole` was not written; None if all was."""
        left = memoryview(whole)
        try:
            while left:
                left = left[self._file.write(left) :]
        except (OSError, OutputLost) as error:
            self.lost_count += 1
            return error
        return None


class ErrorsAside(OutputAside):
    """Standard error: what is lost is told in a line, once others are written again."""

    def __init__(self, file: FileIO) -> None:
        self._told_count = 0
        super().__init__(file)

    def _answer(self, *, has_room: bool, failure: OSError | OutputLost | None) -> None:
        """Nobody could be told."""

    def _head(self) -> bytes:
        lost, self._told_count = self.lost_count - self._told_count, self.lost_count
        return f"fleet: {lost} lines were lost here: nobody read them\n".encode() if lost else b""


@contextmanager
def written_aside() -> Iterator[None]:
    """For as long as the context lasts, nobody who prints or logs waits for who reads it."""
    before = sys.stdout, sys.stderr
    for stream in before:
        stream.flush()
    output, errors = OutputAside(output_file()), ErrorsAside(error_file())
    sys.stdout, sys.stderr = _text(output, before[0]), _text(errors, before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        ends = time.monotonic() + CLOSING_SECONDS
        for each in (output, errors):
            each.wait_written(ends - time.monotonic())


def _text(stream: OutputAside, before: TextIO) -> TextIOWrapper:
    # Not buffered in between: what could not be written would be written again.
    return TextIOWrapper(
        stream,  # type: ignore[arg-type]  # it writes all or nothing, as a buffered one does
        before.encoding,
        errors="replace",
        line_buffering=True,
    )
