"""The dashboard's process: Node.js that serves the built page, as a child of the command."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Self

from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.terminal.interrupt import interrupts_raised

LOWEST_NODE = 20
VERSION_SECONDS = 10.0
# What the process takes to close its chats' sessions and its streams.
GOODBYE_SECONDS = 5.0
# Between two looks at which nodes run on this machine.
LOOK_SECONDS = 1.0

# Where the page is unless a port is named: a browser keeps what it keeps by the address.
USUAL_PORT = 7700
# What answers on which machines a model would fit.
FLEET_COMMAND = (sys.executable, "-P", "-m", "kakeya_fleet.node.cli")

# Where the built files are: beside this module in a wheel, in dashboard/ of a checkout.
BUILT_FILES = (
    Path(__file__).parent / "dashboard_files",
    Path(__file__).parents[4] / "dashboard" / "dist",
)


@dataclass(frozen=True, slots=True)
class Program:
    """Node.js, and the file that it runs."""

    node: str
    script: Path


def find_program() -> Program:
    """Node.js and the built dashboard. Raises CommandFailed for what is missing, with its mend."""
    script = _built_script()
    node = shutil.which("node")
    if node is None:
        raise CommandFailed(
            "NODE_JS_MISSING",
            f"the dashboard runs on Node.js, which is not installed: install Node.js {LOWEST_NODE} "
            "or newer.",
        )
    told = subprocess.run(
        [node, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
    ).stdout.strip()
    version = re.match(r"v(\d+)\.", told)
    if version is None or int(version[1]) < LOWEST_NODE:
        raise CommandFailed(
            "NODE_JS_TOO_OLD",
            f"the dashboard needs Node.js {LOWEST_NODE} or newer, {node} is {told or 'another'}: "
            "install a newer one.",
            metadata={"node": node, "version": told},
        )
    return Program(node, script)


def _built_script() -> Path:
    for folder in BUILT_FILES:
        script = folder / "server" / "main.mjs"
        if script.is_file() and (folder / "page" / "index.html").is_file():
            return script
    raise CommandFailed(
        "DASHBOARD_NOT_BUILT",
        "the dashboard's files are not built: run `make dashboard` in the checkout.",
        metadata={"folder": str(BUILT_FILES[-1])},
    )


Access = Mapping[str, object]
"""See `dashboard_access.told_access`."""


class DashboardProcess:
    """The running process. A context manager that ends it.

    The process ends by itself when this one dies, whatever way: its standard input
    then comes to its end.
    """

    def __init__(self, program: Program, node: str, port: int | None) -> None:
        """`node` is the address to ask first; empty for any node of this machine.

        Without `port` the usual one, or any where that is taken.
        """
        self._child = subprocess.Popen(
            [
                program.node,
                str(program.script),
                *("--end-with-input", "--wait-for-access"),
                *("--node", node),
                *("--port", str(USUAL_PORT if port is None else port)),
                *(("--or-any-port",) if port is None else ()),
                *(f"--fleet-command={word}" for word in FLEET_COMMAND),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for this process, which then ends the child in good order.
            start_new_session=True,
        )
        self._told_to_end = False
        self._before = signal.getsignal(signal.SIGTERM)
        self._named: Mapping[str, Path | None] = {}
        self._access: Access = {}
        # What the process says; empty at its end.
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def ready(self) -> str:
        """The page's address, once it is served; SIGTERM ends `follow` from then on.

        Raises CommandFailed.
        """
        line = self._lines.get()
        if not line:
            raise self._ended()
        told = json.loads(line)
        if told["event"] != "ready":
            raise CommandFailed(
                "DASHBOARD_FAILED", f"the dashboard could not start: {told['message']}"
            )
        # Before anybody hears of the page: SIGTERM may come right behind that.
        self._before = signal.signal(signal.SIGTERM, self._end_told)
        return str(told["url"])

    def name_nodes(self, logs: Mapping[str, Path | None]) -> None:
        """Tells the process which nodes run on this machine, if that is other than before.

        By address, with the file that each logs to; None where it can read none.
        """
        if logs == self._named:
            return
        self._named = dict(logs)
        files = {address: str(path) for address, path in logs.items() if path is not None}
        self._tell({"nodes": list(logs), "logs": files})

    def give_access(self, access: Access) -> None:
        """Tells the process as whom nodes are called, if that is another way than before.

        Private keys go through the pipe alone: others see command lines, and what a process
        starts its environment.
        """
        if access == self._access:
            return
        self._access = access
        self._tell({"access": access})

    def _tell(self, words: Mapping[str, object]) -> None:
        assert self._child.stdin is not None
        line = json.dumps(words) + "\n"
        # A process that has ended says so by the end of its words.
        with suppress(BrokenPipeError):
            os.write(self._child.stdin.fileno(), line.encode())

    def follow(self, look: Callable[[], None], heard: Callable[[dict[str, str]], None]) -> None:
        """Calls `look` each second, and `heard` with what the process says.

        Returns on Ctrl-C or SIGTERM. Raises CommandFailed when the process ends by itself.
        """
        try:
            with interrupts_raised():
                while not self._told_to_end:
                    look()
                    with suppress(queue.Empty):
                        line = self._lines.get(timeout=LOOK_SECONDS)
                        if not line:
                            break
                        heard(json.loads(line))
        except KeyboardInterrupt:
            return
        if not self._told_to_end:
            raise self._ended()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as words:
            for line in words:
                self._lines.put(line)
        self._lines.put("")

    def _end_told(self, _number: int, _frame: FrameType | None) -> None:
        self._told_to_end = True
        # Whatever is done at this moment goes on to where words are waited for.
        self._lines.put("")

    def _ended(self) -> CommandFailed:
        code = self._child.wait()
        return CommandFailed(
            "DASHBOARD_ENDED",
            f"the dashboard's process ended with code {code}: its words above say why.",
            metadata={"code": str(code)},
        )

    def _close(self) -> None:
        if self._child.stdin is not None and not self._child.stdin.closed:
            self._child.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._close()
        try:
            self._child.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
