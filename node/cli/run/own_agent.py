"""An agent of this machine for the time of one chat."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Self

from kakeya_fleet.node.cli.shell.failure import CommandFailed

COMMAND = ("-P", "-m", "kakeya_fleet.node.cli.held_agent", "join", "--json")
# Its sessions are closed by then: it has to say goodbye, and to stop.
GOODBYE_SECONDS = 10.0


class OwnAgent:
    """A `fleet join` of this machine's configuration, which leaves with the context.

    It serves what the configuration says, by itself nothing. Where this process dies, it leaves
    too: the other end of its standard input is here alone.
    """

    def __init__(self) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 `__exit__` closes it
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # Ctrl-C is for the answer here.
            start_new_session=True,
        )

    def address(self) -> str:
        """Where it answers, host:port, once it does. Raises `CommandFailed` when it ended before.

        What it has to say after that nobody reads: it goes on without.
        """
        assert self._process.stdout is not None
        told: dict[str, object] = {}
        for line in self._process.stdout:
            told = json.loads(line)
            if told.get("event") == "ready":
                self._process.stdout.close()
                return str(told.get("local_address") or told["address"])
        error = told.get("error")
        if isinstance(error, dict):
            raise CommandFailed(
                str(error["reason"]), str(error["message"]), metadata=error["metadata"]
            )
        raise CommandFailed(
            "UNEXPECTED_ERROR",
            f"the node ended with code {self._process.wait()} while it started: {self._words()}",
        )

    def _words(self) -> str:
        """Its last ones."""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
