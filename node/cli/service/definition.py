"""What a service manager is told of a node: what runs it, with which files, and its times."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.node.admission.limits import FileLimits
from kakeya_fleet.node.app.supervisor import GOODBYE_SECONDS
from kakeya_fleet.node.cli.shell.failure import ExitCode

STOP_MARGIN_SECONDS = 15.0
"""Beside draining and goodbye, on a machine that is busy."""
RESTART_SECONDS = 5
LATEST_RESTART_SECONDS = 120
"""After a first failure a node is started again in 5 s, later in up to 120 s."""
START_LIMIT_COUNT = 10
START_LIMIT_SECONDS = 900
"""Ten starts in a quarter of an hour are the last ones: what fails so often wants a person."""
NOT_RESTARTED = (int(ExitCode.USAGE),)
"""Exit codes of `fleet join` after which a restart mends nothing: a wrong configuration."""
ENDED_BY_SIGNAL = (130, 143)
"""Those of a node that was ended by SIGINT or SIGTERM while it loaded."""
KEPT_VARIABLES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
)
"""Of the environment at install: where things are. No secrets, and no threads: a node measures
how many it takes."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One node's service. `interpreter` is absolute; `config_file` is what `fleet join` reads."""

    name: str
    config_file: Path
    state: Path
    drain_seconds: float
    interpreter: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """The `fleet join` of this installation; `-P`: nothing is imported from where it starts."""
        module = ("-P", "-m", "kakeya_fleet.node.cli")
        return (self.interpreter, *module, "join", "--config", str(self.config_file))

    @property
    def stop_seconds(self) -> int:
        """From SIGTERM to SIGKILL: drain, goodbye and a margin."""
        return round(self.drain_seconds + GOODBYE_SECONDS + STOP_MARGIN_SECONDS)

    @property
    def descriptors(self) -> int:
        """Open files that the node raises its limit to (`node.admission.file_limit`)."""
        return FileLimits().descriptors


def definition(
    name: str, config_file: Path, state: Path, drain_seconds: float, environment: Mapping[str, str]
) -> Definition:
    """The service of this installation's node, with what is kept of `environment`."""
    kept = tuple((key, environment[key]) for key in KEPT_VARIABLES if environment.get(key))
    return Definition(name, config_file, state, drain_seconds, sys.executable, kept)
