"""Which member a person means, by name or by the beginning of its id."""

from __future__ import annotations

from kakeya import NodeStatus
from kakeya_fleet.node.cli.asking.access import client_of
from kakeya_fleet.node.cli.asking.node_names import ambiguous
from kakeya_fleet.node.cli.shell.failure import CommandFailed


async def member_called(address: str, wanted: str) -> NodeStatus:
    """The one member of the fleet that is called so, as the node at host:port knows it.

    One that does not answer can be meant too. Raises `CommandFailed`.
    """
    async with client_of(address) as client:
        nodes = await client.fleet.nodes()
    found = [each for each in nodes if each.name == wanted]
    if not found and len(wanted) >= 6:
        found = [each for each in nodes if each.node_id.startswith(wanted.lower())]
    if len(found) > 1:
        raise ambiguous(wanted, [(each.node_id[:12], each.address) for each in found])
    if not found:
        known = ", ".join(sorted(each.name for each in nodes))
        raise CommandFailed(
            "NODE_NOT_FOUND",
            f"no node is called {wanted!r}; there are: {known}. Give one of them, or the first "
            "six characters of an id or more.",
            metadata={"node": wanted},
        )
    return found[0]
