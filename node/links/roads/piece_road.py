"""A built road whose bytes go through a segment in pieces; shared memory and ring alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.roads.piece_directions import PieceReceiver, PieceSender
from kakeya_fleet.node.links.roads.road_fault import RoadFault
from kakeya_fleet.node.links.roads.segment import Segment

# One for each direction.
COPY_THREADS = 2


def copy_threads() -> ThreadPoolExecutor:
    """The threads of a road, started when first needed."""
    return ThreadPoolExecutor(COPY_THREADS, thread_name_prefix="road")


class PieceRoad:
    """Implements `node.links.roads.contract.Road`.

    `fault` tears down at once what carries the road; `ended` returns when nothing
    of that is left.
    """

    def __init__(
        self,
        kind: RoadKind,
        directions: tuple[PieceSender, PieceReceiver],
        fault: RoadFault,
        held: tuple[Segment, ThreadPoolExecutor],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        self._kind = kind
        self._sender, self._receiver = directions
        self._fault = fault
        self._segment, self._threads = held
        self._ended = ended

    @property
    def kind(self) -> RoadKind:
        """What it is."""
        return self._kind

    async def send(self, data: memoryview, *, seconds: float) -> None:
        """Hands over the bytes of one tensor; waits while all slots are full."""
        await self._sender.send(data, seconds)

    async def receive(self, byte_count: int, *, seconds: float) -> memoryview:
        """The bytes of the next tensor, in memory of their own."""
        return await self._receiver.receive(byte_count, seconds)

    async def close(self) -> None:
        """Ends it; transfers under way raise `RoadFailed`. The other end notices by itself."""
        self._fault.fail("this end has closed the road")
        self._threads.shutdown(wait=False)
        self._segment.close()
        # A caller that is cancelled here must not leave a child unreaped.
        await asyncio.shield(self._ended())
