"""What `fleet service` asks of a service manager, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kakeya_fleet.node.cli.service.definition import Definition


class State(StrEnum):
    """How a service is. One that is failing is started again, one that failed is not."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"
    FAILING = "failing"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Condition:
    """How a service is now.

    `run` names this run of it, another at each start; `process_id` is 0 without a process.
    `detail` are the manager's or the node's words.
    """

    state: State
    process_id: int = 0
    run: str = ""
    restart_count: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Installed:
    """A service's own file, and the configuration that its node reads."""

    file: Path
    config_file: Path


class ServiceManager(Protocol):
    """One of this machine, for this user. Every method raises `CommandFailed`."""

    @property
    def kind(self) -> str:
        """Which one: systemd or launchd."""
        ...

    @property
    def keeps_log(self) -> bool:
        """Whether it keeps, and bounds, what a service writes on standard error."""
        ...

    def file_of(self, name: str) -> Path:
        """Where the service of the node `name` is defined."""
        ...

    def content_of(self, service: Definition) -> bytes:
        """What that file says."""
        ...

    def installed(self) -> list[Installed]:
        """The services that `fleet service install` made."""
        ...

    def start(self, name: str) -> None:
        """Reads the file anew, has it started at each login, and starts or restarts it.

        Returns while it starts.
        """
        ...

    def stop(self, name: str, seconds: float) -> None:
        """Stops it, waits until it has ended, and starts it at no login any more."""
        ...

    def forget(self, name: str) -> None:
        """The file is gone."""
        ...

    def condition(self, name: str) -> Condition:
        """How the service is now."""
        ...

    def log_command(self, name: str) -> str:
        """What shows the log; empty when the node writes a file of its own."""
        ...

    def last_words(self, name: str) -> str:
        """The last lines that the service wrote; empty when nobody kept them."""
        ...

    def without_login(self) -> str:
        """Sees to it that services run while nobody is logged in; what was done or is to do."""
        ...
