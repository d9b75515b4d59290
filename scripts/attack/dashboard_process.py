"""The dashboard of an agent under attack: a real process of Node.js, and what it holds."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO
from urllib.parse import urlsplit

import psutil

from kakeya_fleet.node.cli.fleet.dashboard_process import find_program
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from scripts.attack.subject import MODEL, Held, held_by

STOP_SECONDS = 15.0
SEEDS: Sequence[tuple[str, str, object]] = (
    ("GET", "/", None),
    ("GET", "/events", None),
    ("GET", "/assets/none.js", None),
    ("POST", "/plan", {"verifier": MODEL, "contextTokens": 100, "kvStrategy": "sink_window"}),
    (
        "POST",
        "/generate",
        {
            "sessionKey": "",
            "model": MODEL,
            "mode": "text",
            "system": "",
            "maxTokens": 2,
            "turns": [{"role": "user", "content": "def f(x):"}],
            "temperature": 0,
            "speculation": "auto",
            "kvStrategy": "auto",
        },
    ),
    ("POST", "/close", {"sessionKey": "a"}),
    ("POST", "/rights", {}),
    ("POST", "/load", {"nodeId": "a", "model": MODEL, "role": "verifier"}),
    ("POST", "/unload", {"nodeId": "a", "model": MODEL, "role": "verifier"}),
)
"""What its page asks for, near enough to be read."""


class DashboardProcess:
    """`fleet dashboard`, and the process that it starts."""

    def __init__(self, command: subprocess.Popen[str], errors: IO[bytes]):
        """Waits until it serves. Raises `ValueError` when it says something else first."""
        self._command = command
        self._errors = errors
        assert command.stdout is not None
        told = json.loads(command.stdout.readline())
        if told["event"] != "ready":
            raise ValueError(f"the dashboard did not start: {told}")
        self.address = urlsplit(str(told["url"])).netloc
        (self._process,) = psutil.Process(command.pid).children()

    @property
    def running(self) -> bool:
        """Whether neither process has ended."""
        return self._command.poll() is None and self._process.is_running()

    def held(self) -> Held:
        """Raises `psutil.NoSuchProcess` when it has ended."""
        return held_by(self._process)

    def complaints(self) -> list[str]:
        """Lines that it wrote to its standard error: of what nothing was expected."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").splitlines()


@contextmanager
def dashboard_of(node: str) -> Iterator[DashboardProcess | None]:
    """One that watches the node at host:port; None where none is built or there is no Node.js."""
    try:
        find_program()
    except CommandFailed:
        yield None
        return
    words = ("-m", "kakeya_fleet.node.cli", "dashboard", "--no-open", "--json", "--node", node)
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as command,
    ):
        try:
            yield DashboardProcess(command, errors)
        finally:
            command.terminate()
            command.wait(STOP_SECONDS)
