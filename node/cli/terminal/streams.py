"""The process's own three streams, made fit before anything is read or written.

stdin   bytes that are no text are an error where they are read
stdout  a failed write raises `OutputLost`, whoever writes
stderr  a failed write is lost: nobody could be told of it, and the exit code stays

A descriptor that was closed is opened on the null device, so that no socket takes its
number. It is opened for reading: stdin has ended then, and writing fails as above.
"""

from __future__ import annotations

import errno
import os
import sys
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(Exception):
    """What was printed did not arrive where stdout leads, and why.

    No failure of a command: nothing but the entry of the process answers it. Of a pipe
    that nobody reads, BrokenPipeError tells.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__("it is closed" if error.errno == errno.EBADF else error.strerror)


class _Output(FileIO):
    """A file whose failed writes have a name."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes as a file does. Raises `OutputLost`, BrokenPipeError."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error) from error


class _Errors(FileIO):
    """A file whose failed writes are lost."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes as a file does, or nothing."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Puts such streams in the place of Python's. Once, by the entry of the process."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(descriptor)
    source = BufferedReader(FileIO(0, closefd=False))
    sys.stdin = TextIOWrapper(source, _encoding_of(sys.stdin), errors="strict")
    sys.stdout = _writer(output_file(), sys.stdout)
    sys.stderr = _writer(error_file(), sys.stderr)


def output_file() -> FileIO:
    """Standard output as a file; its failed writes raise `OutputLost`, BrokenPipeError."""
    return _Output(1, "w", closefd=False)


def error_file() -> FileIO:
    """Standard error as a file; its failed writes are lost."""
    return _Errors(2, "w", closefd=False)


def drop_output() -> None:
    """Lets what could not be written go; the interpreter's end would fail over it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _writer(target: FileIO, before: TextIO | None) -> TextIOWrapper:
    # A character that the encoding lacks is no reason to stop.
    return TextIOWrapper(
        BufferedWriter(target),
        _encoding_of(before),
        errors="replace",
        line_buffering=target.isatty() or target.fileno() == 2,
    )


def _encoding_of(stream: TextIO | None) -> str:
    """That of Python's own stream; None stands for one whose descriptor was closed."""
    return "utf-8" if stream is None else stream.encoding
