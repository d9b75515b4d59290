"""Calls of TrustService to a node of this machine, by whoever owns it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeVar

import grpc.aio

from kakeya.rpc_status import kakeya_error
from kakeya.v1 import trust_pb2_grpc
from kakeya_fleet.node.cli.asking.failures import told_as_failures
from kakeya_fleet.node.cli.asking.interruption import run_interruptible
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent, agents_here, starting_here
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.shell.remedies import sentence
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.trust.membership_files import MembershipFiles

Result = TypeVar("Result")
SECONDS = 20.0


def told_text(count: int) -> str:
    """How many members heard of it at once: `2 members were told`."""
    return "1 member was told" if count == 1 else f"{count} members were told"


class OwnedNode:
    """A running node of this machine, whose files the user can read."""

    def __init__(self, agent: LocalAgent) -> None:
        """Raises `NodeError` when its key cannot be read."""
        self.agent = agent
        assert agent.folder is not None
        key = MembershipFiles(agent.folder).owner_key()
        self.metadata = (("authorization", f"Bearer {key}"),)

    @property
    def address(self) -> str:
        """Where programs of this machine call it."""
        return self.agent.local_address


def owned(node: str | None) -> OwnedNode:
    """The node of this machine that is called so, or the only one with an authority.

    Raises `CommandFailed`.
    """
    found = [each for each in agents_here() if each.local_address and each.folder]
    if node is not None and found:
        known = ", ".join(each.name for each in found)
        found = [each for each in found if node in (each.name, each.address, each.local_address)]
        if not found:
            raise CommandFailed(
                "NODE_NOT_FOUND",
                f"no node of a fleet with an authority that runs on this machine is called "
                f"{node!r}; there are: {known}.",
                metadata={"node": node},
            )
    if not found:
        starting = bool(starting_here())
        raise CommandFailed(
            "NODE_STARTING" if starting else "NO_LOCAL_NODE",
            "a node is starting on this machine: run it again in a moment."
            if starting
            else "no node of a fleet with an authority runs on this machine"
            + (f" as {node}" if node else "")
            + ": run this on a member's own machine; `fleet init NAME` makes such a fleet.",
        )
    if len(found) > 1:
        raise CommandFailed(
            "NODE_AMBIGUOUS",
            f"several nodes run here, {', '.join(each.name for each in found)}: say which with "
            "--node NAME.",
            metadata={"nodes": ", ".join(each.name for each in found)},
        )
    try:
        return OwnedNode(found[0])
    except NodeError as error:
        raise CommandFailed(error.reason, sentence(str(error)), metadata=error.metadata) from error


def ask_trust(
    node: OwnedNode,
    work: Callable[[trust_pb2_grpc.TrustServiceAsyncStub], Coroutine[object, object, Result]],
) -> Result:
    """Runs `work` with a stub of the node. Raises `CommandFailed`."""

    async def session() -> Result:
        async with grpc.aio.insecure_channel(node.address) as channel:
            stub: trust_pb2_grpc.TrustServiceAsyncStub = trust_pb2_grpc.TrustServiceStub(channel)
            try:
                return await work(stub)
            except grpc.aio.AioRpcError as error:
                raise kakeya_error(error, node.address) from None

    with told_as_failures():
        return run_interruptible(session())
