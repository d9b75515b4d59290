"""What is to be looked at: this machine, the asked node, and the fleet as that node sees it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psutil

from kakeya import KakeyaError, Liveness, Node, NodeStatus, Timeouts
from kakeya_fleet.fleet.diagnosis.agents import no_agent, unreachable_agent
from kakeya_fleet.fleet.diagnosis.finding import Finding
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.asked_node import asked_address
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent, agents_here, starting_here
from kakeya_fleet.node.cli.asking.node_loads import nearest_living
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.doctor.answers import answer_at

ANSWER_SECONDS = 2.0
"""For one call of any node: slower ones are as good as frozen to people who wait for a doctor."""
ASKING_SECONDS = 3.0
"""For what the asked node says of itself and of its fleet, in however many parts."""
MOST_VISITED = 32
"""Peers that are called; the nearest ones, then those that the node holds suspect or dead."""

_LOST = (Liveness.SUSPECT, Liveness.DEAD)


@dataclass(frozen=True, slots=True)
class Site:
    """What every check is given.

    `agent` is the asked node where it is an agent of this user on this machine, else None;
    `node` what the asked node says of itself, None when none answers. `peers` are those
    that are visited, and `unvisited_count` those beyond them.
    """

    address: str = ""
    agent: LocalAgent | None = None
    node: Node | None = None
    nodes: tuple[NodeStatus, ...] = ()
    peers: tuple[NodeStatus, ...] = ()
    unvisited_count: int = 0
    trouble: Finding | None = None
    """Why `node` is None."""

    @property
    def process(self) -> psutil.Process:
        """The agent's process, or else this one. Raises psutil.Error."""
        return psutil.Process(self.agent.process_id if self.agent is not None else None)

    @property
    def absence(self) -> str:
        """A sentence that says why nothing is known of a fleet."""
        return self.trouble.what[:1].upper() + self.trouble.what[1:] + "." if self.trouble else ""


def called_agent(node: str | None) -> str:
    """host:port of the asked node; empty when none was named, and none answers here.

    Raises `CommandFailed` for a name that is nobody's.
    """
    return "" if node is None and not agents_here() else asked_address(node)


async def look_around(address: str) -> Site:
    """The site as the node at `address` sees it, in 5 seconds at most."""
    if not address:
        return Site(trouble=no_agent([agent.name for agent in starting_here()]))
    agent = next((each for each in agents_here() if each.address == address), None)
    timeouts = Timeouts(connect=ANSWER_SECONDS, unary=ANSWER_SECONDS)
    try:
        async with Callers().client(address, timeouts) as client:
            async with asyncio.timeout(ASKING_SECONDS):
                node, snapshot = await asyncio.gather(client.fleet.node(), client.fleet.snapshot())
            node, nodes = sanitized(node), sanitized(snapshot).nodes
    except (KakeyaError, TimeoutError):
        answer = await answer_at(address)
        return Site(address, agent, trouble=unreachable_agent(address, answer))
    others = [each for each in nodes if not each.is_self and each.address]
    lost = [each for each in others if each.liveness in _LOST]
    visited = [*nearest_living(others, len(others)), *lost]
    return Site(
        address,
        agent,
        node,
        nodes,
        tuple(visited[:MOST_VISITED]),
        max(0, len(visited) - MOST_VISITED),
    )
