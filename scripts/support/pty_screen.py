"""A program on a terminal of its own, and what people see there."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import psutil
import pyte

# The terminal is the program's own, so that its keys and sizes become signals.
_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_FRAME_BEGINS = b"\x1b[H"
KEYS = {"up": "\x1b[A", "down": "\x1b[B", "enter": "\r", "tab": "\t", "ctrl-d": "\x04"}


class Started(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, when it has ended. Raises `subprocess.TimeoutExpired`."""
        ...


def starting(words: Sequence[str], environment: Mapping[str, str]) -> Callable[[int], Started]:
    """Starts any program on the terminal that it is given."""

    def start(slave: int) -> Started:
        return subprocess.Popen(
            [sys.executable, "-IS", "-c", _ON_TERMINAL, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )

    return start


class Process:
    """A program on a pseudo-terminal; its screen is kept as a terminal would draw it.

    `start` is given the terminal's descriptor, and makes it the program's own.
    """

    def __init__(
        self,
        start: Callable[[int], Started],
        *,
        columns: int = 100,
        lines: int = 30,
        screen: type[pyte.Screen] = pyte.Screen,
    ) -> None:
        self.screen = screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self.raw = b""
        master, slave = pty.openpty()
        self._master = master
        self._size(columns, lines)
        self._process = start(slave)
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        """The screen's lines, ends trimmed."""
        with self._changed:
            return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """The whole screen, a line each."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, *, seconds: float = 60.0) -> tuple[re.Match[str], float]:
        """The match of `pattern` on the screen, once it is there; the seconds it took."""
        started = time.monotonic()
        with self._changed:
            while True:
                text = "\n".join(line.rstrip() for line in self.screen.display)
                found = re.search(pattern, text, re.M)
                if found:
                    return found, time.monotonic() - started
                left = started + seconds - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise AssertionError(f"{pattern!r} did not come in {seconds} s:\n{text}")

    def wait_for_whole(self, *, seconds: float = 60.0) -> None:
        """Waits until the frame that is being drawn is whole: until the next one begins."""
        with self._changed:
            drawn = self.raw.count(_FRAME_BEGINS)
            if not self._changed.wait_for(lambda: self.raw.count(_FRAME_BEGINS) > drawn, seconds):
                raise AssertionError(f"no frame came in {seconds} s:\n{self.screen.display}")

    def type(self, text: str) -> None:
        """Types `text`, without an end of line."""
        os.write(self._master, text.encode())

    def press(self, *keys: str) -> None:
        """Presses keys of `KEYS`, or types what is none of them."""
        for key in keys:
            self.type(KEYS.get(key, key))

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal sends it."""
        self.type("\x03")

    def interrupt_reading(self, *, seconds: float = 60.0) -> None:
        """Ctrl-C once the program waits for a key.

        Python hears of one between a prompt and the read behind it with the next key only.
        """
        program = psutil.Process(self._process.pid)
        until = time.monotonic() + seconds
        while program.status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < until, "it does not read"
            time.sleep(0.01)
        self.interrupt()

    def resize(self, columns: int, lines: int) -> None:
        """Gives the terminal another size, of which the program hears."""
        with self._changed:
            self.screen.resize(lines, columns)
        self._size(columns, lines)

    def end(self, *, seconds: float = 60.0) -> int | None:
        """Its exit code, once it has ended and all that it wrote was read."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.text}") from None
        self._reader.join(seconds)
        return code

    def close(self) -> None:
        """Kills it where it runs, and lets the terminal go."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(5)
        os.close(self._master)

    def _size(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._changed:
                self.raw += data
                self._stream.feed(data)
                self._changed.notify_all()
