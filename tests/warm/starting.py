"""Starts `fleet` as copies of a process that has imported the libraries already.

They are processes like any other, with pids, signals and sockets of their own: a second
instead of three to seven for an agent, of which a test suite has a hundred, and as much less
for a command. One with other variables that libraries read while they are imported is started
as people start it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from scripts.support.agent_process import start_process
from tests.support.own_cache import EXACTNESS
from tests.warm.template import HUB_OFFLINE, LOCK

# Importing, or reading all tests, on a busy machine.
PATIENCE_SECONDS = 600.0
# Of variables that libraries read while they are imported, or that change the interpreter.
READ_AT_IMPORT = (
    *("OMP_", "OPENBLAS_", "MKL_", "TORCH", "PYTORCH_", "ATEN_", "DNNL_", "ONEDNN_"),
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "GRPC_", "PROTOCOL_BUFFERS_"),
    *("LD_", "MALLOC_", "MLX_"),
)
INTERPRETERS = "PYTHON"
# What torch sets itself when this process comes to import it, and what a copy takes over.
NO_MATTER = {"TORCHINDUCTOR_CACHE_DIR", HUB_OFFLINE}
# What `fleet join` sets itself before it imports anything; and no test asks the models' hub.
COPIES_OWN = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "OPENBLAS_NUM_THREADS": "1",
    HUB_OFFLINE: "1",
}
FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
ROOT = Path(__file__).parents[2]


class WarmProcess:
    """A running copy, with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = None
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, status: int) -> None:
        """It ended, as its parent says."""
        self.returncode = status
        self._ended.set()

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit status. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("fleet", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """A signal, unless it ended."""
        if self.returncode is None:
            # Its parent may not have told of its end yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pass_on_signals(self) -> None:
        """From now on it gets what asks this process to end: a terminal's Ctrl-C, SIGTERM."""

        def pass_on(number: int, _frame: FrameType | None) -> None:
            self.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmStarts:
    """The process that is copied, started with the first agent of whoever shares the folder.

    It ends with the last `close`.
    """

    def __init__(
        self, folder: Path, root: Path = ROOT, environment: Mapping[str, str] | None = None
    ) -> None:
        """`folder`: of the process's socket.

        The sources at `root` are imported, with `environment` beside this process's own.
        """
        self._folder = folder
        self._root = root
        self._beside = environment or {}
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._channel: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._started: list[int] = []
        self._running: dict[int, WarmProcess] = {}
        self._early: dict[int, int] = {}
        self._gone = False

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
    ) -> WarmProcess | subprocess.Popen[str]:
        """`fleet ...` with its standard output in a pipe, and `errors` as its standard error."""
        if list(command[: len(FLEET)]) != FLEET or not self.can_copy(environment):
            return start_process(command, environment, errors)
        return self.piped(command[len(FLEET) :], environment, errors)

    def piped(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        errors: IO[bytes],
        network: str = "",
        *,
        module: str = "",
    ) -> WarmProcess:
        """A copy as of `copy` with its standard output in a pipe, and nothing to read."""
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing:
            descriptors = (nothing.fileno(), writing, errors.fileno())
            try:
                process = self.copy(
                    arguments, environment, descriptors, network=network, module=module
                )
            finally:
                os.close(writing)
        process.stdout = open(reading, encoding="utf-8")  # noqa: SIM115 whoever waits closes it
        return process

    def begin(self) -> None:
        """Starts the process, unless it runs: whoever shares the folder finds it from now on."""
        with self._lock:
            self._begin()

    def can_copy(self, environment: Mapping[str, str]) -> bool:
        """Whether a copy with that environment is what a new process would be."""
        self.begin()
        return _at_import(environment) == _at_import(self._environment)

    def copy(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int],
        *,
        on_terminal: bool = False,
        network: str = "",
        module: str = "",
    ) -> WarmProcess:
        """`fleet ARGUMENTS` with these three streams, or `python -m module ARGUMENTS`.

        `on_terminal` makes standard input its controlling terminal, `network` is the file of a
        network namespace that it is to run in. Raises ValueError where `can_copy` says no.
        """
        if not self.can_copy(environment):
            differing = _at_import(environment).items() ^ _at_import(self._environment).items()
            raise ValueError(f"a copy imported its libraries with other variables: {differing}")
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": os.getcwd(),
            "on_terminal": on_terminal,
            # The process of a release before knows of neither.
            **({"network": network} if network else {}),
            **({"module": module} if module else {}),
        }
        with self._lock:
            assert self._channel is not None
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            process = WarmProcess(self._next_pid())
        with self._changed:
            if process.pid in self._early:
                process.end(self._early.pop(process.pid))
            else:
                self._running[process.pid] = process
        return process

    def _begin(self) -> None:
        if self._channel is not None:
            return
        address = self._folder / "socket"
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with (self._folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                channel.connect(str(address))
            except (FileNotFoundError, ConnectionRefusedError):
                # None runs yet, or the last one's users have all gone.
                address.unlink(missing_ok=True)
                self._start_template(address)
                channel.connect(str(address))
            self._environment = json.loads((self._folder / "environment").read_text())
        self._channel = channel
        self._listener = threading.Thread(
            target=self._listen, args=(channel,), name="warm starts", daemon=True
        )
        self._listener.start()
        self._next_pid()

    def _start_template(self, address: Path) -> None:
        # A test may have its own value of such a variable at the moment when the first copy starts.
        environment = {**os.environ, **COPIES_OWN, "OMP_NUM_THREADS": "1", **self._beside}
        (self._folder / "environment").write_text(json.dumps(environment))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(address))
            listening.listen()
            self._start(listening, environment)

    def _start(self, listening: socket.socket, environment: Mapping[str, str]) -> None:
        """Starts the process that listens there."""
        words = [sys.executable, "-m", "tests.warm.template", str(listening.fileno())]
        words += [str(self._folder), str(EXACTNESS)]
        # Nobody waits for its end, which is that of the last who use it: its parent, which
        # starts it in the background, has ended at once.
        subprocess.run(
            ["sh", "-c", '"$@" &', "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(listening.fileno(),),
            env=dict(environment),
            cwd=self._root,
            start_new_session=True,
            check=True,
        )

    def _next_pid(self) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._started or self._gone, PATIENCE_SECONDS)
            if not self._started:
                what = "ended" if self._gone else "does not answer"
                raise RuntimeError(f"the process that copies are made of {what}")
            return self._started.pop(0)

    def _listen(self, channel: socket.socket) -> None:
        while words := _read(channel):
            told = json.loads(words)
            with self._changed:
                if "pid" in told:
                    self._started.append(told["pid"])
                elif (process := self._running.pop(told["ended"], None)) is not None:
                    process.end(told["status"])
                else:
                    self._early[told["ended"]] = told["status"]
                self._changed.notify_all()
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def close(self) -> None:
        """Leaves the process, which ends with the last who does; agents are asked to end."""
        if self._channel is not None:
            self._channel.shutdown(socket.SHUT_RDWR)
            self._listener.join()
            self._channel.close()


def _read(channel: socket.socket) -> bytes:
    """Empty where the other side has ended."""
    try:
        return channel.recv(4096)
    except ConnectionResetError:
        return b""


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment an import depends on."""
    return {
        name: value
        for name, value in {**COPIES_OWN, **environment}.items()
        if name.startswith((*READ_AT_IMPORT, INTERPRETERS)) and name not in NO_MATTER
    }
