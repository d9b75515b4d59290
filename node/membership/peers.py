"""Ways to other nodes: one shared channel a node and address, and measured round trips."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import grpc.aio

from kakeya_fleet.node.membership.network import source_towards
from kakeya_fleet.node.rpc.channels import Channels

ROUND_TRIPS_KEPT = 16


class Peers:
    """Channels by address and round trips by node. Belongs to one event loop.

    A channel lives until `prune` or `close`; whoever got it from `channel`
    never closes it.
    """

    def __init__(self, channels: Channels | None = None) -> None:
        self._opening = channels or Channels()
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._round_trips: dict[str, deque[float]] = {}
        self._ways: dict[str, str] = {}
        self._chosen: dict[str, str] = {}
        self._sources: dict[tuple[str, str], str] = {}

    def channel(self, address: str, node_id: str = "") -> grpc.aio.Channel:
        """The channel to the node at host:port, opened lazily; to any member when it is empty."""
        # In plain text nobody proves who it is, and one channel an address is enough.
        key = address, node_id if self._opening.is_encrypted else ""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._opening.open(*key)
            self._channels[key] = channel
            self._sources[key] = source_towards(address)
        return channel

    def choose(self, node_id: str, addresses: Sequence[str]) -> str:
        """Which of the node's addresses to use: the same until one fails, then the next.

        The first, when the node has the chosen one no more.
        """
        chosen = self._chosen.get(node_id, "")
        return chosen if chosen in addresses else addresses[0]

    def failed(self, node_id: str, address: str, addresses: Sequence[str]) -> None:
        """Notes that the node did not answer at one of its addresses."""
        if address != self.choose(node_id, addresses):
            # It was given up already, or is none of the node's any more.
            return
        following = addresses.index(address) + 1
        self._chosen[node_id] = addresses[following % len(addresses)]

    def way(self, node_id: str) -> str:
        """The address, host:port, at which the node answered last; empty before it did."""
        return self._ways.get(node_id, "")

    def record_round_trip(self, node_id: str, seconds: float, address: str) -> None:
        """Adds one exchange's round trip; those by another address do not count any more."""
        if self._ways.get(node_id) != address:
            self._round_trips.pop(node_id, None)
            self._ways[node_id] = address
        self._round_trips.setdefault(node_id, deque(maxlen=ROUND_TRIPS_KEPT)).append(seconds)

    def round_trip(self, node_id: str) -> float | None:
        """The quickest of the last 16 exchanges in seconds, None before the first."""
        kept = self._round_trips.get(node_id)
        return min(kept) if kept else None

    async def prune(self, addresses: Collection[str], nodes: Collection[str]) -> None:
        """Closes the channels to all other addresses, and forgets all other nodes."""
        for kept in (self._round_trips, self._ways, self._chosen):
            for node_id in kept.keys() - nodes:
                del kept[node_id]
        await self._shut([key for key in self._channels if key[0] not in addresses])

    async def reroute(self) -> None:
        """Closes the channels whose connections began at an address that is not the way any more.

        They would be silent until their pings time out: after a change of networks the next
        calls go by the way of now.
        """
        await self._shut(
            [key for key, source in self._sources.items() if source_towards(key[0]) != source]
        )

    async def _shut(self, keys: Sequence[tuple[str, str]]) -> None:
        # All leave before one is closed, so that nobody gets one meanwhile that is closed next.
        closing = [self._channels.pop(key) for key in keys]
        for key in keys:
            del self._sources[key]
        for channel in closing:
            await channel.close()

    async def reopen(self) -> None:
        """Closes every channel, so that the next calls use the certificates of now."""
        await self._shut(list(self._channels))

    async def close(self) -> None:
        """Closes every channel."""
        await self.prune((), ())
