"""A script of this package in a process of its own, asked and answering in lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

Behind = Callable[[Sequence[str]], list[str]]
"""Makes a command one that runs elsewhere."""


class ChildProcess:
    """The process from outside. It ends when its standard input does: with `close`, or the context.

    Ctrl-C is for this process, which ends the child when nobody needs it any more.
    """

    def __init__(self, module: str, words: Sequence[str] = (), behind: Behind = list) -> None:
        """Starts `python -m module words`."""
        self._process = subprocess.Popen(
            behind([sys.executable, "-m", module, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Writes a line to it. Raises `OSError` when it has ended."""
        print(line, file=self._process.stdin, flush=True)

    def end_input(self) -> None:
        """Lets it end, and say what it has to say."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def hear(self) -> str:
        """Its next line. Raises `ChildProcessError` when it has ended."""
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            self.close()
            raise ChildProcessError("a script's process has ended; see what it wrote above")
        return line.strip()

    def close(self) -> None:
        """Ends it, and waits for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()
