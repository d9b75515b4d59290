"""As whom an address is called from this machine: a member of a fleet, or nobody, in plain text.

Who can read a node's state directory acts as that node. An agent's own address is called as that
agent; another address as the local node that knows it, or else as the only one that there is. A
fleet with an authority is never called in plain text because one without was found as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from kakeya_fleet.node.cli.asking.local_agents import agents_here, folders_here
from kakeya_fleet.node.cli.shell.failure import CommandFailed

# That of `node.trust.membership_files`, whose libraries are slow to import.
FLEET_FILE = Path("trust") / "fleet"


class Standing(IntEnum):
    """Whose word counts before whose."""

    NAMED = 0
    """Its state directory is the one of KAKEYA_STATE."""
    RUNNING = 1
    KEPT = 2
    """No agent runs in it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One state directory of this machine; `fleet_id` is empty without an authority."""

    folder: Path
    standing: Standing
    fleet_id: str = ""
    fleet_name: str = ""
    address: str = ""
    """host:port of its agent, for members; empty where none answers."""
    local_address: str = ""
    """The same for programs of this machine."""
    peers: tuple[str, ...] = ()
    """host:port of nodes that it knew last."""


def places_here() -> list[Place]:
    """Those that an agent answers in, and those of members. Raises `CommandFailed`."""
    named = os.environ.get("KAKEYA_STATE")
    named_folder = Path(named).resolve() if named else None
    answering = {agent.folder: agent for agent in agents_here()}
    found = []
    for folder in folders_here():
        is_member = (folder / FLEET_FILE).is_file()
        if not is_member and folder not in answering:
            continue
        standing = Standing.RUNNING if folder in answering else Standing.KEPT
        if folder == named_folder:
            standing = Standing.NAMED
        fleet_id, fleet_name = _fleet_of(folder) if is_member else ("", "")
        agent = answering.get(folder)
        addresses = (agent.address, agent.local_address) if agent is not None else ("", "")
        peers = _peers_of(folder)
        found.append(Place(folder, standing, fleet_id, fleet_name, *addresses, peers))
    return found


def place_for(address: str, places: Sequence[Place], via: str = "") -> Place | None:
    """As which of the nodes here host:port is called; None for plain text.

    `via` is the node that told the address: nodes of its fleet are called as it is. Raises
    `CommandFailed` where several fleets could be meant.
    """
    for place in places:
        if address in (place.address, place.local_address):
            return place if place.fleet_id else None
    if via and via != address:
        return place_for(via, places)
    ranked = [[place for place in places if place.standing is each] for each in Standing]
    knowing = [[place for place in group if address in place.peers] for group in ranked]
    for group in (*knowing, *ranked):
        if group:
            return _only_fleet(address, group)
    return None


def _only_fleet(address: str, group: Sequence[Place]) -> Place | None:
    members: dict[str, Place] = {}
    for place in group:
        if place.fleet_id:
            members.setdefault(place.fleet_id, place)
    if len(members) > 1:
        told = ", ".join(f"{place.fleet_name} ({place.folder})" for place in members.values())
        raise CommandFailed(
            "FLEET_AMBIGUOUS",
            f"{address} can be of several fleets that this machine is in: {told}. Say which with "
            "KAKEYA_STATE=FOLDER.",
            metadata={"address": address},
        )
    return next(iter(members.values()), None)


def _fleet_of(folder: Path) -> tuple[str, str]:
    """Id and name, unchecked: what cannot be read is told of when it is used."""
    try:
        facts = json.loads((folder / FLEET_FILE).read_bytes().partition(b"\n")[2])
        return str(facts["fleet_id"]), str(facts["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(folder), folder.name


def _peers_of(folder: Path) -> tuple[str, ...]:
    from kakeya_fleet.node.config.state_directory import read_checked

    try:
        return tuple(read_checked(folder / "peers").decode("utf-8", errors="replace").split())
    except (OSError, ValueError):
        return ()
