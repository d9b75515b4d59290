"""Agents that run on this machine, as their state directories tell."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

SAME_START_SECONDS = 1.0
"""Of two readings of when a process was created; the clock may be set between them."""


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent whose process is alive; `address` is host:port.

    One that is starting answers nobody yet; its address is empty until it is bound. In a fleet
    with an authority members call `address`, and programs of this machine `local_address`.
    `folder` is its state directory.
    """

    name: str
    address: str
    process_id: int
    is_starting: bool = False
    started_at_unix: float = 0.0
    """Seconds since 1970, of one that is starting."""
    folder: Path | None = None
    """Its state directory, where it was read there."""
    local_address: str = ""
    node_id: str = ""
    """Empty of one that is starting."""
    log_file: str = ""
    """Of `--log-file`; empty where its log goes to its standard error alone."""


def local_agents(root: Path, state: Path | None = None) -> list[LocalAgent]:
    """Agents with a state directory in `root`, or whose state directory is `state`, by name.

    A file that an agent left when it was killed, or that is damaged, names no agent.
    """
    folders = {path.parent.resolve() for path in root.glob("*/agent.json")}
    if state is not None:
        folders.add(state.resolve())
    agents = (_read(folder / "agent.json") for folder in folders)
    found = [each for each in agents if each is not None and _lives(each)]
    return sorted(found, key=lambda agent: (agent.name, agent.address))


def agents_here() -> list[LocalAgent]:
    """The agents that answer on this machine, by name; KAKEYA_STATE names one directory more."""
    return [agent for agent in _all_here() if not agent.is_starting]


def starting_here() -> list[LocalAgent]:
    """Those that will answer: they are importing and checking what they serve."""
    return [agent for agent in _all_here() if agent.is_starting]


def folders_here() -> list[Path]:
    """State directories of this machine, in which an agent runs or may run again."""
    from kakeya_fleet.node.config.state_directory import default_state

    state = os.environ.get("KAKEYA_STATE")
    found = {folder.resolve() for folder in default_state("any").parent.glob("*/")}
    if state:
        found.add(Path(state).resolve())
    return sorted(found)


def _all_here() -> list[LocalAgent]:
    from kakeya_fleet.node.config.state_directory import default_state

    state = os.environ.get("KAKEYA_STATE")
    return local_agents(default_state("any").parent, Path(state) if state else None)


def _read(path: Path) -> LocalAgent | None:
    from kakeya_fleet.node.config.state_directory import STARTING

    try:
        facts = json.loads(path.read_bytes())
        return LocalAgent(
            name=str(facts.get("name") or path.parent.name),
            address=str(facts["address"]),
            process_id=int(facts["pid"]),
            is_starting=facts.get("state") == STARTING,
            started_at_unix=float(facts.get("started_at_unix", 0.0)),
            folder=path.parent,
            local_address=str(facts.get("local_address", "")),
            node_id=str(facts.get("node_id", "")),
            log_file=str(facts.get("log_file", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _lives(agent: LocalAgent) -> bool:
    """Whether its process does; one that is starting has to be that process itself.

    Its number may be another's by now, and who is told to wait would wait for ever.
    """
    if not process_lives(agent.process_id):
        return False
    if not agent.is_starting:
        return True
    import psutil

    try:
        began = psutil.Process(agent.process_id).create_time()
    except psutil.Error:
        return False
    return abs(began - agent.started_at_unix) < SAME_START_SECONDS


def process_lives(process_id: int) -> bool:
    """Whether a process of that id exists."""
    if process_id <= 0:
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
