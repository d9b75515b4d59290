"""Starts the processes of a group's ranks, and ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

MODULE = "kakeya_fleet.node.roles.groups.rank_process"
WAIT_SECONDS = 10.0
STANDARD_ERROR = 2

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start: its name for people, command line, variables, and what it reads."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str]
    first_input: bytes = b""


class Processes:
    """Processes of this host. Belongs to one thread, which must outlive them.

    On Linux a process that asked for it ends with the thread that started it.
    """

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, launch: Launch) -> None:
        """Starts one. Raises `OSError`."""
        process = subprocess.Popen(
            launch.command,
            env={**os.environ, **launch.variables},
            stdin=subprocess.PIPE if launch.first_input else subprocess.DEVNULL,
            # What an agent prints is read by programs.
            stdout=STANDARD_ERROR,
            # Ctrl-C is the agent's to handle: it decides when its ranks end.
            start_new_session=True,
        )
        self._running[launch.name] = process
        if process.stdin is not None:
            process.stdin.write(launch.first_input)
            process.stdin.flush()

    def fault(self) -> str:
        """A sentence about one that ended; empty while none has.

        Of several, one that was killed: ranks end by themselves once another is gone.
        """
        polled = ((name, process.poll()) for name, process in self._running.items())
        ended = [(name, status) for name, status in polled if status is not None]
        if not ended:
            return ""
        name, status = min(ended, key=lambda each: each[1] >= 0)
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"{name} ended {how}"

    def kill(self) -> None:
        """Ends all of them and what they started, and waits until they have. Raises nothing."""
        for process in self._running.values():
            _kill(process)
        for name, process in self._running.items():
            try:
                process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                _log.error("rank_not_ended", name=name, pid=process.pid)
            if process.stdin is not None:
                # What it has never read cannot be written any more.
                with suppress(OSError):
                    process.stdin.close()
        self._running.clear()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With its session, such as the ssh processes that mlx.launch started."""
    # As long as nobody has waited for it, its id means it and nothing else.
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def rank_command() -> list[str]:
    """The command line of a rank on this host."""
    return [sys.executable, "-P", "-m", MODULE]
