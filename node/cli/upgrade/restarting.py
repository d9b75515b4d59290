"""What runs of this installation, and the services among it restarted, with drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.node.cli.asking.local_agents import LocalAgent, agents_here, starting_here
from kakeya_fleet.node.cli.service.found import services
from kakeya_fleet.node.cli.service.installing import started
from kakeya_fleet.node.cli.service.manager import ServiceManager, State
from kakeya_fleet.node.cli.service.manager_here import manager_here
from kakeya_fleet.node.cli.shell.failure import CommandFailed

READY_SECONDS = 600.0
"""How long the next service waits for one that loads its models: its clients may be there."""

_RUNS = (State.RUNNING, State.STARTING, State.FAILING)


@dataclass(frozen=True, slots=True)
class Running:
    """Services of this installation that run, by node, and agents that people started."""

    manager: ServiceManager | None
    services: tuple[str, ...]
    by_hand: tuple[LocalAgent, ...]


def running(interpreter: str, environment: Mapping[str, str]) -> Running:
    """What runs now; services of other installations are none of ours."""
    try:
        manager: ServiceManager | None = manager_here(environment)
    except CommandFailed:
        manager = None
    found = services(manager) if manager else []
    own = [
        each
        for each in found
        if each.condition.state in _RUNS and _runs_from(each.file, Path(interpreter).parent)
    ]
    theirs = {each.condition.process_id for each in found}
    agents = (*agents_here(), *starting_here())
    by_hand = tuple(agent for agent in agents if agent.process_id not in theirs)
    return Running(manager, tuple(each.name for each in own), by_hand)


def restart(manager: ServiceManager | None, names: Sequence[str]) -> list[str]:
    """Restarts them, one after the other, so that clients of one have another to go to.

    Returns those that run or load now: all, where there is a manager. Raises
    `CommandFailed` (SERVICE_FAILED) for the first that does not start.
    """
    if manager is None:
        return []
    for name in names:
        started(manager, name, READY_SECONDS)
    return list(names)


def _runs_from(file: Path, folder: Path) -> bool:
    return f"{folder}/" in file.read_text("utf-8", errors="replace")
