"""The nodes that a client can turn to, whichever of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kakeya.connection import Connection
from kakeya.errors import KakeyaError
from kakeya.fleet_view import AsyncFleet
from kakeya.generated.values import Liveness
from kakeya.watch_values import NodeStatus
from kakeya.ways import Ways

_LOOK_SECONDS = 2.0


class Roster:
    """Connections of one client, by address, and the fleet as it was last seen."""

    def __init__(
        self, home: Connection, connect: Callable[[str, str], Connection], ways: Ways
    ) -> None:
        """`connect` makes the connection to an address at which a node, by its id, is awaited."""
        self.home = home
        self.ways = ways
        self._connect = connect
        self._connections: dict[tuple[str, str], Connection] = {}
        self._seen: tuple[NodeStatus, ...] = ()

    def connection(self, address: str, node_id: str) -> Connection:
        """The one connection to the node at `address`; an empty id awaits whoever is there.

        At home that is who the client was told to ask. Raises UsageError for what is no
        address, or no id.
        """
        if address == self.home.address:
            return self.home
        place = (address, node_id)
        if place not in self._connections:
            self._connections[place] = self._connect(*place)
        return self._connections[place]

    async def remember(self) -> None:
        """Looks at the fleet, so that `nodes` knows whom to ask when home is gone."""
        self._seen = await AsyncFleet(self.home).nodes()

    async def nodes(self, lost_address: str) -> tuple[NodeStatus, ...]:
        """The fleet as the first node that answers sees it, else as it was last seen.

        The node at `lost_address` is asked last: it may only be leaving. A node that
        keeps silent for two seconds is passed over. Raises the error of the first that
        was asked when none answers and nothing was ever seen.
        """
        places = {self.home.address: "", **dict(self._connections.keys())}
        for node in self._seen:
            if node.liveness is not Liveness.LEFT and (address := self.ways.to(node)):
                places.setdefault(address, node.node_id)
        first: KakeyaError | None = None
        for address in sorted(places, key=lost_address.__eq__):
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    there = self.connection(address, places[address])
                    self._seen = await AsyncFleet(there).nodes()
                    return self._seen
            except TimeoutError:
                continue
            except KakeyaError as error:
                first = first or error
        if first is not None and not self._seen:
            raise first
        return self._seen

    async def close(self) -> None:
        """Closes all connections."""
        for connection in (self.home, *self._connections.values()):
            await connection.close()
