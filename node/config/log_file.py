"""The log as a file that is rotated by size, written by a thread of its own.

Whoever logs puts a line into a bounded queue and goes on, whatever the disk does: a full
disk or one that hangs costs lines, which are counted, and never the event loop's time.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path

from kakeya_fleet.node.errors import BadConfig

MAX_WAITING_LINES = 10_000
"""A line of half a KiB each: 5 MiB at most, minutes of a busy node."""
CLOSING_SECONDS = 2.0
"""What a disk that hangs may delay the end of the process by."""


class LogFile:
    """An open log. Lines go to `logger`, in order, until `close`.

    Of `byte_count` the file becomes FILE.1, FILE.1 becomes FILE.2 and so on; `file_count`
    older ones are kept. Raises `BadConfig` when it cannot be opened.
    """

    def __init__(self, path: Path, byte_count: int, file_count: int) -> None:
        try:
            _require_file(path)
            self._file = _RotatedFile(path, maxBytes=byte_count, backupCount=file_count)
        except OSError as error:
            raise BadConfig(
                f"the log {path} cannot be written ({error.strerror})",
                "name another file with --log-file",
                key="log_file",
            ) from error
        waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(MAX_WAITING_LINES)
        self._sending = _Sending(waiting)
        self._writing = _Writing(waiting, self._file)
        self._writing.start()
        # None of the process's own loggers: what libraries say goes its own way.
        self.logger = logging.Logger("kakeya file", logging.DEBUG)
        self.logger.addHandler(self._sending)

    @property
    def lost_count(self) -> int:
        """Lines that could not be kept: the queue was full, or the file could not be written."""
        return self._sending.lost_count + self._file.lost_count

    def close(self) -> None:
        """Writes what waits, and closes the file. A second call does nothing."""
        if self.logger.hasHandlers():
            self.logger.removeHandler(self._sending)
            if self._writing.ended():
                self._file.close()
            if self.lost_count:
                name = self._file.baseFilename
                sys.stderr.write(f"fleet: the log {name} lost {self.lost_count} lines\n")


class _Sending(QueueHandler):
    """Puts lines into the queue; counts those for which it has no room."""

    def __init__(self, waiting: queue.Queue[logging.LogRecord | None]) -> None:
        super().__init__(waiting)
        self.lost_count = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Never waits."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.lost_count += 1


class _Writing(QueueListener):
    """The thread that writes; a daemon, so that one that hangs holds up no end."""

    def __init__(
        self, waiting: queue.Queue[logging.LogRecord | None], file: logging.Handler
    ) -> None:
        super().__init__(waiting, file)
        self._waiting = waiting

    def ended(self) -> bool:
        """Whether all that waited was handed to the file within `CLOSING_SECONDS`."""
        thread = self._thread
        with suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSING_SECONDS)
            if thread is not None:
                thread.join(CLOSING_SECONDS)
        return thread is None or not thread.is_alive()


class _RotatedFile(RotatingFileHandler):
    """The file; readable by its owner alone, as the state is."""

    def __init__(self, path: Path, *, maxBytes: int, backupCount: int) -> None:  # noqa: N803
        self.lost_count = 0
        super().__init__(path, maxBytes=maxBytes, backupCount=backupCount, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(
            self.baseFilename, "a", encoding="utf-8", errors="backslashreplace", opener=_private
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 logging's
        """Counts a line that could not be written; says on standard error when it begins."""
        self.lost_count += 1
        if self.lost_count == 1:
            sys.stderr.write(f"fleet: the log {self.baseFilename} loses lines: {sys.exception()}\n")


def _require_file(path: Path) -> None:
    """Raises OSError for what is there and no file: opening a pipe waits for its reader."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
