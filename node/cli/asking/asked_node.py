"""Which node a command asks: one on this machine, or the one that an address or a name means."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from kakeya import KakeyaError, Liveness, NodeStatus
from kakeya_fleet.node.cli.asking.access import client_of
from kakeya_fleet.node.cli.asking.failures import failure_of
from kakeya_fleet.node.cli.asking.interruption import run_interruptible
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent, agents_here, starting_here
from kakeya_fleet.node.cli.asking.node_names import ambiguous, nodes_called
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.terminal.output import note
from kakeya_fleet.node.cli.terminal.quantities import seconds_text


def asked_address(node: str | None) -> str:
    """host:port of `node`, an address or a name; of an agent of this machine without one.

    Without one the first by name is taken, and the others are told. Raises
    `CommandFailed`.
    """
    if node is not None:
        return named_address(node)
    agents = agents_here()
    if not agents:
        _nobody_here()
    if len(agents) > 1:
        note(f"asking {agents[0].name}; also here: {_listed(agents[1:])}; choose with --node NAME")
    return agents[0].address


def chosen_address(node: str | None, what: str, *, may_ask: bool) -> str:
    """As `asked_address`, for what must not happen to the wrong node: several are a question.

    `what` is what the command does, in words that follow "which node". Without
    `may_ask`, or without a terminal, it is refused.
    """
    agents = agents_here()
    if node is not None or len(agents) < 2:
        return asked_address(node)
    if not (may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandFailed(
            "NODE_AMBIGUOUS",
            f"several nodes run on this machine, {_listed(agents)}: say which with --node NAME.",
            metadata={"nodes": ", ".join(agent.name for agent in agents)},
        )
    return _choice(agents, what).address


def named_address(node: str) -> str:
    """host:port of an address or a name: of an agent on this machine, or else in its fleet.

    Raises `CommandFailed`.
    """
    if ":" in node:
        _refuse_starting([agent for agent in starting_here() if agent.address == node])
        return node
    agents = agents_here()
    called = [agent for agent in agents if agent.name == node]
    if len(called) > 1:
        raise ambiguous(node, [(agent.address, "on this machine") for agent in called])
    if called:
        return called[0].address
    _refuse_starting([agent for agent in starting_here() if agent.name == node])
    if not agents:
        _nobody_here(f"no node runs on this machine to ask where {node!r} is")
    return address_in(_fleet_of(agents[0].address), node)


def address_in(nodes: Sequence[NodeStatus], name: str) -> str:
    """host:port of the one node of the fleet that `name` names, also by the start of its id.

    Raises `CommandFailed`.
    """
    alive = [each for each in nodes if each.liveness is Liveness.ALIVE and each.address]
    called = nodes_called(alive, name)
    if len(called) > 1:
        raise ambiguous(name, [(each.address, each.node_id[:12]) for each in called])
    if not called:
        known = ", ".join(sorted({each.name for each in alive})) or "none"
        raise CommandFailed(
            "NODE_NOT_FOUND",
            f"no live node is called {name!r}; there are: {known}. Give one of them, or "
            "--node HOST:PORT.",
            metadata={"node": name},
        )
    return called[0].address


def _fleet_of(address: str) -> tuple[NodeStatus, ...]:
    async def ask() -> tuple[NodeStatus, ...]:
        async with client_of(address) as client:
            return await client.fleet.nodes()

    try:
        return run_interruptible(ask())
    except KakeyaError as error:
        raise failure_of(error) from error


def _nobody_here(cause: str = "no node runs on this machine") -> NoReturn:
    _refuse_starting(starting_here())
    raise CommandFailed(
        "NO_LOCAL_NODE",
        f"{cause}: start one with `fleet join --serve verifier=tiny`, or name one with "
        "--node HOST:PORT.",
    )


def _refuse_starting(agents: Sequence[LocalAgent]) -> None:
    """Says of the first one that it is starting; nothing without any."""
    if not agents:
        return
    first = agents[0]
    seconds = seconds_text(max(0.0, time.time() - first.started_at_unix))
    raise CommandFailed(
        "NODE_STARTING",
        f"{first.name} is starting on this machine (process {first.process_id}, for {seconds}): "
        "run it again in a moment.",
        metadata={"node": first.name, "pid": str(first.process_id)},
    )


def _choice(agents: Sequence[LocalAgent], what: str) -> LocalAgent:
    """Asks the person. Raises `CommandFailed` for an answer that names none."""
    for number, agent in enumerate(agents, 1):
        note(f"  {number}  {agent.name} ({agent.address})")
    sys.stderr.write(f"which node {what}? ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    for number, agent in enumerate(agents, 1):
        if answer in (str(number), agent.name, agent.address):
            return agent
    raise CommandFailed(
        "NODE_AMBIGUOUS", f"{answer!r} is none of them: give a number or a name of the list."
    )


def _listed(agents: Sequence[LocalAgent]) -> str:
    return ", ".join(f"{agent.name} ({agent.address})" for agent in agents)
