"""Ways to other nodes: one shared channel a node and address, and measured round trips."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import grpc.aio

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
        self._turns: dict[str, int] = {}

    def channel(self, address: str, node_id: str = "") -> grpc.aio.Channel:
        """The channel to the node at host:port, opened lazily; to any member when it is empty."""
        # In plain text nobody proves who it is, and one channel an address is enough.
        key = address, node_id if self._opening.is_encrypted else ""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._opening.open(*key)
            self._channels[key] = channel
        return channel

    def choose(self, node_id: str, addresses: Sequence[str]) -> str:
        """Which of the node's addresses to use: the same until one fails, then the next."""
        return addresses[self._turns.get(node_id, 0) % len(addresses)]

    def failed(self, node_id: str) -> None:
        """Notes that the node did not answer at the chosen address."""
        self._turns[node_id] = self._turns.get(node_id, 0) + 1

    def record_round_trip(self, node_id: str, seconds: float) -> None:
        """Adds one exchange's round trip."""
        self._round_trips.setdefault(node_id, deque(maxlen=ROUND_TRIPS_KEPT)).append(seconds)

    def round_trip(self, node_id: str) -> float | None:
        """The quickest of the last 16 exchanges in seconds, None before the first."""
        kept = self._round_trips.get(node_id)
        return min(kept) if kept else None

    async def prune(self, addresses: Collection[str], nodes: Collection[str]) -> None:
        """Closes the channels to all other addresses, and forgets all other nodes."""
        for node_id in self._round_trips.keys() - nodes:
            del self._round_trips[node_id]
        for node_id in self._turns.keys() - nodes:
            del self._turns[node_id]
        for key in [key for key in self._channels if key[0] not in addresses]:
            await self._channels.pop(key).close()

    async def reopen(self) -> None:
        """Closes every channel, so that the next calls use the certificates of now."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def close(self) -> None:
        """Closes every channel."""
        await self.prune((), ())
