"""The services of this user's nodes, and the nodes that they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.node.cli.asking.local_agents import LocalAgent, local_agents
from kakeya_fleet.node.cli.service.manager import Condition, ServiceManager, State
from kakeya_fleet.node.cli.service.node_config import read_config
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.config.state_directory import default_state


@dataclass(frozen=True, slots=True)
class FoundService:
    """One service: its node's name, its files, how it is, and where its node answers."""

    name: str
    file: Path
    config_file: Path
    condition: Condition
    address: str = ""
    log_file: str = ""
    """Where the node writes its log; empty where the manager keeps it."""


def services(manager: ServiceManager) -> list[FoundService]:
    """All that are installed; one whose configuration is unreadable goes by its file's name."""
    found = []
    for installed in manager.installed():
        config = read_config(installed.config_file)
        name = config.name if config else installed.config_file.parent.name
        condition = manager.condition(name)
        agent = agent_of(name, config.state_path if config else installed.config_file.parent)
        address = agent.address if agent and condition.state is State.RUNNING else ""
        found.append(
            FoundService(
                name,
                installed.file,
                installed.config_file,
                condition,
                address,
                config.log_file if config else "",
            )
        )
    return found


def the_service(manager: ServiceManager, name: str | None) -> FoundService:
    """The one of that name, or the only one. Raises `CommandFailed` (SERVICE_NOT_FOUND)."""
    found = services(manager)
    matching = [each for each in found if name in (None, each.name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(each.name for each in found)
    if not found:
        cause, mend = "no service is installed", "make one with `fleet service install`"
    elif name is None:
        cause, mend = f"there are services of {names}", "say which one with --name"
    else:
        cause, mend = f"no service is called {name!r}", f"give one of {names}"
    raise CommandFailed("SERVICE_NOT_FOUND", f"{cause}: {mend}.", metadata={"names": names})


def agent_of(name: str, state: Path) -> LocalAgent | None:
    """The agent that runs here by that name, or with that state directory; None without one."""
    agents = local_agents(default_state(name).parent, state)
    return next((agent for agent in agents if agent.name == name), None)
