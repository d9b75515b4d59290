"""`fleet` commands as people type them, each with an environment and a home of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from scripts.support.agent_process import AgentProcess
from scripts.support.pty_screen import Process
from tests.support.in_process import Finished, run_here
from tests.support.own_cache import own_cache
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import FLEET, WarmProcess, WarmStarts

AT_ONCE_SECONDS = 5.0
"""Shorter than any deadline of a command's calls, and long on a busy machine."""

NODE = {"OMP_NUM_THREADS": "1", "KAKEYA_LINKS": "grpc"}
"""Of agents: no ring is tried, which would take two processes of each."""

ANY_PORT = {"KAKEYA_BIND": "127.0.0.1:0", "KAKEYA_HTTP_BIND": "127.0.0.1:0"}
"""Of agents that are started as people start them: none that one of another test may have next."""

Agents = tuple[AgentProcess, AgentProcess]
Ask = Callable[..., Finished]
Screen = Callable[..., Process]


class RunningCommand:
    """A process whose output is read here, line by line."""

    def __init__(self, process: WarmProcess, stdout: IO[str], errors: Path) -> None:
        self.pid = process.pid
        self.stdout = stdout
        self._process = process
        self._errors = errors

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def line(self) -> str:
        """The next line that it prints."""
        return self.stdout.readline()

    def event(self) -> Any:
        """The next line, which is JSON."""
        return json.loads(self.line())

    def send_signal(self, number: signal.Signals) -> None:
        """A signal, unless it ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, unless it ended."""
        self._process.kill()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(seconds)

    def finish(self) -> Finished:
        """What it was, once it ended by itself; `out` is what was not read yet."""
        out = "" if self.stdout.closed else self.stdout.read()
        code = self.wait()
        assert code is not None
        return Finished(code, out, self._errors.read_text("utf-8"))

    def interrupt(self) -> Finished:
        """Ctrl-C: what it was. Raises `subprocess.TimeoutExpired` when it waits for its node."""
        self.send_signal(signal.SIGINT)
        self.wait(AT_ONCE_SECONDS)
        return self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        self.wait()
        self.stdout.close()


class Terminal:
    """Runs `fleet`: in this process, or where a process is what matters, in one of its own."""

    def __init__(self, home: Path, warm: WarmStarts) -> None:
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith("KAKEYA_")
        }
        self.environment |= {
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": own_cache(home / "cache"),
            "HF_HUB_OFFLINE": "1",
            # Several agents on two busy cores: more threads only wait for each other.
            "OMP_NUM_THREADS": "1",
            # Nor does any agent try a ring, which takes two processes.
            "KAKEYA_LINKS": "grpc",
            "COLUMNS": "100",
            **ANY_PORT,
        }
        self._home = home
        self._warm = warm
        self._started: list[RunningCommand] = []

    def run(self, *words: str, stdin: str | bytes = "", **environment: str) -> Finished:
        """In this process, its streams no terminals."""
        return run_here(words, self.environment | environment, stdin)

    def start(
        self, *words: str, stdin: Path = Path(os.devnull), **environment: str
    ) -> RunningCommand:
        """In a process of its own, its output in a pipe."""
        errors = self._home / f"errors-{len(self._started)}"
        reading, writing = os.pipe()
        try:
            with stdin.open("rb") as source, errors.open("wb") as told:
                descriptors = (source.fileno(), writing, told.fileno())
                process = self._warm.copy(words, self.environment | environment, descriptors)
        finally:
            os.close(writing)
        stdout = open(reading, encoding="utf-8")  # noqa: SIM115 `end_all` closes it
        self._started.append(RunningCommand(process, stdout, errors))
        return self._started[-1]

    def shell(self, line: str) -> Finished:
        """As people start it, an interpreter of its own, with a shell's redirections."""
        done = subprocess.run(
            ["sh", "-c", f"exec {shlex.join(FLEET)} {line}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=self.environment,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def on_terminal(self, words: Sequence[str], slave: int, **environment: str) -> WarmProcess:
        """In a process of its own, on that terminal."""
        left_out = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
        kept = {key: value for key, value in self.environment.items() if key not in left_out}
        own = {**kept, "TERM": "xterm-256color", **environment}
        return self._warm.copy(words, own, (slave, slave, slave), on_terminal=True)

    def end_all(self) -> None:
        """Kills what runs still."""
        for command in self._started:
            command.__exit__(None, None, None)
