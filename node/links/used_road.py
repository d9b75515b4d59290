"""A road that stands, with what waits to go and to come by it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kakeya.v1 import placement_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import RoadKind
from kakeya_fleet.node.links.crc32c import crc32c
from kakeya_fleet.node.links.delivery import Kept
from kakeya_fleet.node.links.link_limits import INLINE_BYTES
from kakeya_fleet.node.links.roads.contract import Road

# What a transfer may take: an idle host answers at once, a busy one shares its cores.
ROAD_SECONDS = 2.0
SLOWEST_BYTES_PER_SECOND = 32e6

TRANSPORTS: dict[RoadKind, placement_pb2.Transport.ValueType] = {
    RoadKind.GRPC: placement_pb2.TRANSPORT_GRPC,
    RoadKind.LOCAL: placement_pb2.TRANSPORT_LOCAL,
    RoadKind.RING: placement_pb2.TRANSPORT_RING,
}
KINDS = {transport: kind for kind, transport in TRANSPORTS.items()}


@dataclass(slots=True, eq=False)
class UsedRoad:
    """One generation's road. Belongs to the event loop's thread."""

    generation: int
    road: Road
    leaving: asyncio.Queue[Kept] = field(default_factory=asyncio.Queue)
    coming: asyncio.Queue[wire.TensorAnnouncement] = field(default_factory=asyncio.Queue)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def send_all(self) -> None:
        """Sends what leaves, until cancelled. Raises `RoadFailed`."""
        while True:
            kept = await self.leaving.get()
            data = memoryview(kept.tensor.data).cast("B")
            await self.road.send(data, seconds=deadline(len(data)))

    async def close(self) -> None:
        """Ends its tasks, then the road."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        await self.road.close()


def deadline(byte_count: int) -> float:
    """Seconds that a transfer of so many bytes may take."""
    return ROAD_SECONDS + byte_count / SLOWEST_BYTES_PER_SECOND


async def checksum(data: bytes | memoryview) -> int:
    """CRC-32C, that of many bytes in another thread."""
    if len(data) < INLINE_BYTES:
        return crc32c(data)
    return await asyncio.to_thread(crc32c, data)
