"""Agents that run on this machine, as their state directories tell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalAgent:
    """An agent whose process is alive; `address` is host:port."""

    name: str
    address: str
    process_id: int


def local_agents(root: Path, state: Path | None = None) -> list[LocalAgent]:
    """Agents with a state directory in `root`, or whose state directory is `state`, by name.

    A file that an agent left when it was killed, or that is damaged, names no agent.
    """
    found = {agent.address: agent for agent in _announced(root, state)}
    return sorted(found.values(), key=lambda agent: (agent.name, agent.address))


def agents_here() -> list[LocalAgent]:
    """The agents that run on this machine, by name; KAKEYA_STATE names one directory more."""
    from node.state_directory import default_state

    state = os.environ.get("KAKEYA_STATE")
    return local_agents(default_state("any").parent, Path(state) if state else None)


def _announced(root: Path, state: Path | None) -> Iterator[LocalAgent]:
    folders = [*sorted(root.glob("*/agent.json"))]
    if state is not None:
        folders.append(state / "agent.json")
    for path in folders:
        agent = _read(path)
        if agent is not None and process_lives(agent.process_id):
            yield agent


def _read(path: Path) -> LocalAgent | None:
    try:
        facts = json.loads(path.read_bytes())
        return LocalAgent(
            name=str(facts.get("name") or path.parent.name),
            address=str(facts["address"]),
            process_id=int(facts["pid"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


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
