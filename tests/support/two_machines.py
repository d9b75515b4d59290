"""Two machines of a fleet, each a network namespace: `fleet` runs on either.

As copies of the process that all tests share; whoever makes the machines is a process of its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.network_namespaces import TwoNamespaces
from tests.warm.starting import WarmProcess, WarmStarts

ENDING_SECONDS = 30.0


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed."""
        return json.loads(self.out)


class Agent:
    """A `fleet join --json` on one of the machines."""

    def __init__(self, process: WarmProcess) -> None:
        self._process = process

    def events(self, *names: str) -> list[Any]:
        """The first of each name that is not read yet, in whatever order they come."""
        found: dict[str, Any] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            found.setdefault(event["event"], event)
            if found.keys() >= set(names):
                return [found[name] for name in names]
        raise SystemExit(f"{set(names) - found.keys()} was never said")

    def ended(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def wait(self) -> int | None:
        """Its exit status once it ends. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(ENDING_SECONDS)

    def end(self) -> None:
        """Lets it leave."""
        self._process.terminate()
        self.wait()


class TwoMachines(TwoNamespaces):
    """`near`, in whose network this process is from then on, and `far` behind a wire."""

    def __init__(self, home: Path, warm: Path, **environment: str) -> None:
        """Each keeps its state below `home`, and has `environment` beside this process's own.

        `warm` is the folder of the process that tests share. Raises as `TwoNamespaces` does.
        """
        self._home, self._environment = home, environment
        self._warm = WarmStarts(warm)
        # What is copied may have to be started yet: in nobody's namespace.
        self._warm.begin()
        super().__init__()
        self._networks = {
            "near": f"/proc/{os.getpid()}/ns/net",
            "far": f"/proc/{self.pid}/ns/net",
        }

    def join(self, machine: str, *words: str) -> Agent:
        """`fleet join --json` on a machine, its errors among this process's."""
        with open(2, "wb", closefd=False) as errors:
            return Agent(self._start(machine, ("join", "--json", *words), errors))

    def fleet(self, machine: str, *words: str) -> Ran:
        """A command on a machine, once it has ended."""
        with tempfile.TemporaryFile() as errors:
            process = self._start(machine, words, errors)
            assert process.stdout is not None
            with process.stdout as stdout:
                out = stdout.read()
            code = process.wait(ENDING_SECONDS)
            assert code is not None
            errors.seek(0)
            return Ran(code, out, errors.read().decode())

    def _start(self, machine: str, words: tuple[str, ...], errors: Any) -> WarmProcess:
        environment = {
            **os.environ,
            "KAKEYA_LINKS": "grpc",
            "XDG_STATE_HOME": str(self._home / machine),
            **self._environment,
        }
        return self._warm.piped(words, environment, errors, self._networks[machine])
