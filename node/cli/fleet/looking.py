"""The fleet as it is now, asked once."""

from __future__ import annotations

from contextlib import AsyncExitStack

from kakeya import AsyncClient
from kakeya_fleet.node.cli.asking.node_loads import Loads
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.fleet.status_watch import Picture


async def look(client: AsyncClient) -> Picture:
    """The fleet now, and what its live nodes say of themselves."""
    picture = Picture()
    snapshot = sanitized(await client.fleet.snapshot())
    picture.take(snapshot)
    own = sanitized(await client.fleet.node())
    picture.load({own.card.node_id: own})
    async with AsyncExitStack() as stack:
        others = (node for node in snapshot.nodes if not node.is_self)
        picture.load(await Loads(stack, client.address).ask(others))
    return picture
