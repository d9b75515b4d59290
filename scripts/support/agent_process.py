"""Agents as child processes of this one: for demonstrations, measurements and tests.

Each is a real `fleet join --json`; its events are read as they are printed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from scripts.support import slowing
from scripts.support.child_process import Behind, ChildProcess

Event = Mapping[str, object]

# Loading a model and measuring its steps on a slow, busy machine.
READY_SECONDS = 120.0
STOP_SECONDS = 30.0
STANDS_SECONDS = 9 * slowing.WORKS_SECONDS
ANY_HTTP_PORT = {"KAKEYA_HTTP_BIND": "127.0.0.1:0"}


class AgentProcessFailed(Exception):
    """The agent ended, or did not say what was waited for; the message has its last words."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What the agent is started with; `state` is its state directory."""

    name: str
    fleet_name: str
    state: Path
    serve: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    bind: str = "127.0.0.1:0"
    mdns: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    behind: Behind = list

    def command(self) -> list[str]:
        """The command line."""
        words = [
            sys.executable,
            "-m",
            "kakeya_fleet.node.cli",
            "join",
            "--json",
            "--name",
            self.name,
        ]
        words += ["--fleet", self.fleet_name, "--state", str(self.state), "--bind", self.bind]
        for role in self.serve:
            words += ["--serve", role]
        for peer in self.peers:
            words += ["--peer", peer]
        if not self.mdns:
            words.append("--no-mdns")
        return self.behind(words)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
) -> subprocess.Popen[str]:
    """A process with its standard output in a pipe. Tests replace it by a faster start."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        text=True,
        # Ctrl-C is the parent's to handle: it decides when its agents end.
        start_new_session=True,
    )


class AgentProcess:
    """One running agent. Starting waits until it is ready."""

    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        options.state.mkdir(parents=True, exist_ok=True)
        self._log = options.state.with_suffix(".log")
        with self._log.open("ab") as log:
            # Beside others of this machine: at no port that one of them may have next.
            environment = {**ANY_HTTP_PORT, **os.environ, **options.environment}
            self._process = start_process(options.command(), environment, log)
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"events of {options.name}")
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """What it wrote to its standard error."""
        return self._log.read_text(errors="replace")

    @property
    def events(self) -> tuple[Event, ...]:
        """What it printed up to now."""
        with self._changed:
            return tuple(self._events)

    @property
    def ready(self) -> Event:
        """Its first event. Raises `AgentProcessFailed`."""
        return self.wait_for("ready", seconds=READY_SECONDS)

    @property
    def address(self) -> str:
        """Where it answers, host:port."""
        return str(self.ready["address"])

    @property
    def node_id(self) -> str:
        """Its node id."""
        return str(self.ready["node_id"])

    def wait_for(
        self,
        name: str,
        matches: Callable[[Event], bool] = lambda _: True,
        *,
        seconds: float = 60.0,
    ) -> Event:
        """The first event of that name which `matches`, once it was printed.

        Raises `AgentProcessFailed` when it does not come within `seconds`, or
        the agent ends before.
        """

        def found() -> Event | None:
            named = (event for event in self._events if event.get("event") == name)
            return next((event for event in named if matches(event)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or self._ended, seconds)
            event = found()
        if event is None:
            state = "it ended" if self._ended else f"{seconds:g} s passed"
            raise AgentProcessFailed(
                f"agent {self.options.name} did not say {name!r}: {state}. "
                f"Its last words: {self.log[-2000:] or 'none'}"
            )
        return event

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP and SIGCONT."""
        self._process.send_signal(number)

    @contextmanager
    def slowed(self, stands_seconds: float = STANDS_SECONDS) -> Iterator[Callable[[], None]]:
        """Lets it work for a tenth of the time: an answer lasts, however fast its machine is.

        So a fault that is meant for its middle strikes there. What is yielded ends that early. It
        goes on to answer pings: nobody takes it for dead.
        """
        with ChildProcess(slowing.__name__, [str(self.pid), str(stands_seconds)]) as slower:
            slower.hear()
            yield slower.close

    def kill(self) -> None:
        """Ends it at once, as a power cut would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Lets it drain and leave; its exit status. Kills it when it takes too long."""
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Waits until it has left; its exit status. Kills it when it takes too long."""
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode

    def _read(self) -> None:
        if self._process.stdout is None:
            raise AssertionError("the agent was started without a pipe")
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                self._events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM come when the block is left; handlers run in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class LocalFleet:
    """Agents of one fleet on this machine; all are ended when the context is left.

    The state directories are temporary unless `directory` is given.
    """

    def __init__(self, fleet_name: str, *, directory: Path | None = None) -> None:
        self.fleet_name = fleet_name
        self._scratch = tempfile.TemporaryDirectory(prefix="kakeya-") if directory is None else None
        self._directory = directory or Path(self._scratch.name if self._scratch else "")
        self._agents: list[AgentProcess] = []

    def start(
        self,
        name: str,
        *,
        serve: Sequence[str] = (),
        peers: Sequence[str] = (),
        bind: str = "127.0.0.1:0",
        mdns: bool = False,
        environment: Mapping[str, str] | None = None,
        behind: Behind = list,
        state: Path | None = None,
    ) -> AgentProcess:
        """Starts an agent; its state directory is named after it, so a name can come back.

        Unless it has another one, `state`.
        `behind` has its command run elsewhere, such as in another network namespace; it may
        start no process of its own, since the agent's is signalled.
        """
        options = AgentOptions(
            name=name,
            fleet_name=self.fleet_name,
            state=state or self._directory / name,
            serve=tuple(serve),
            peers=tuple(peers),
            bind=bind,
            mdns=mdns,
            environment=environment or {},
            behind=behind,
        )
        # None falls between a process and its record here.
        with _signals_held():
            self._agents.append(AgentProcess(options))
        return self._agents[-1]

    @property
    def agents(self) -> tuple[AgentProcess, ...]:
        """All that were started, in order."""
        return tuple(self._agents)

    @property
    def directory(self) -> Path:
        """Where the state directories are."""
        return self._directory

    def stop(self) -> None:
        """Ends every agent, the last one first."""
        for agent in reversed(self._agents):
            agent.stop()
        self._agents.clear()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
