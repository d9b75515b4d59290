"""The receiving half of a link's end: what comes by any way, checked and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from kakeya_fleet.node.links.ends.road_run import RoadRun
from kakeya_fleet.node.links.ends.shared_parts import SharedParts, checksum
from kakeya_fleet.node.links.ends.tensor_sender import TensorSender
from kakeya_fleet.node.links.protocol.chunks import (
    Piece,
    RefusedTensor,
    TensorAssembler,
    TensorFault,
    check_head,
)
from kakeya_fleet.node.links.protocol.contract import LinkClosed, RoadKind
from kakeya_fleet.node.links.protocol.delivery import MOST_TENSORS, Arrivals
from kakeya_fleet.node.links.protocol.messages import Announcement, Chunk, RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.promotion_events import Received
from kakeya_fleet.node.links.protocol.settings import INLINE_BYTES, LARGE_BYTES
from kakeya_fleet.node.links.protocol.tensor import WireTensor
from kakeya_fleet.node.links.roads.contract import Road, RoadFailed
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

TakeTensor = Callable[[WireTensor], None]
"""Takes each tensor as it arrives, in place of `receive`. Raises `RefusedTensor`."""


class TensorReceiver:
    """Receives one link's tensors. Belongs to the event loop's thread."""

    def __init__(
        self, parts: SharedParts, sender: TensorSender, base: RoadKind, take: TakeTensor | None
    ) -> None:
        """`sender` tells what has arrived; `base` carries the chunks."""
        self._parts = parts
        self._sender = sender
        self._base = base
        self._take = take
        self._arrivals = Arrivals()
        self._assembler = TensorAssembler(
            parts.link_id, parts.limits.most_tensor_bytes, self._arrivals
        )
        self._adding: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._inbox: deque[WireTensor] = deque()
        self._inbox_bytes = 0
        self._changed = asyncio.Event()
        self._closed: str | None = None
        self._saying: asyncio.TimerHandle | None = None

    @property
    def through(self) -> int:
        """Every tensor up to this has arrived."""
        return self._arrivals.through

    async def receive(self) -> WireTensor:
        """The next tensor. What arrived before the link ended still comes; then `LinkClosed`."""
        while not self._inbox:
            if self._closed is not None:
                raise LinkClosed(self._closed)
            self._changed.clear()
            await self._changed.wait()
        tensor = self._inbox.popleft()
        self._inbox_bytes -= len(tensor.data)
        self._say_taken(0)
        return tensor

    async def chunk(self, chunk: Chunk) -> None:
        """Takes a chunk; that of much data is copied and checked after this returned.

        Raises `TensorOutOfOrder`.
        """
        adding = self._adding
        if adding is not None:
            await asyncio.wait((adding,))
        if chunk.offset == 0:
            self._began_at = self._parts.clock()
        piece = self._assembler.place(chunk)
        self._parts.counts.chunk_received(len(piece.data))
        if len(piece.data) < INLINE_BYTES:
            self._assembler.copy(piece)
            self._added(chunk.tensor_id, piece)
        else:
            self._adding = asyncio.create_task(
                self._add_in_thread(chunk.tensor_id, piece), name="link-chunk"
            )

    def announced(self, announcement: Announcement, road: RoadRun | None) -> None:
        """A tensor comes over `road`, None for one that has failed. Raises `TensorOutOfOrder`."""
        check_head(announcement.head, self._parts.limits.most_tensor_bytes)
        self._arrivals.announce(announcement.tensor_id)
        self._check_count()
        if road is not None:
            road.coming.put_nowait(announcement)

    async def receive_all(self, run: RoadRun, road: Road) -> None:
        """Takes what is announced on a road, until cancelled.

        Raises `RoadFailed`, also for a tensor that comes corrupt.
        """
        most_bytes = self._parts.limits.most_tensor_bytes
        while True:
            announced = await run.coming.get()
            began_at = self._parts.clock()
            total = check_head(announced.head, most_bytes)
            data = await road.receive(total, seconds=run.settings.deadline(total))
            if len(data) != total or await checksum(data) != announced.crc32c:
                self._parts.counts.refused(TensorFault.CORRUPT)
                raise RoadFailed("a tensor came corrupt")
            self._arrived(announced.tensor_id, announced.head.with_bytes(data), began_at, run.kind)

    def close(self, reason: str, *, drop: bool) -> None:
        """Nothing more comes; with `drop` what has come is gone as well."""
        self._closed = reason
        if drop:
            self._inbox.clear()
        if self._saying is not None:
            self._saying.cancel()
        self._changed.set()

    async def settle(self) -> None:
        """Waits until a chunk that is being taken is there."""
        if self._adding is not None:
            await asyncio.wait((self._adding,))

    async def _add_in_thread(self, tensor_id: int, piece: Piece) -> None:
        await asyncio.to_thread(self._assembler.copy, piece)
        try:
            self._added(tensor_id, piece)
        except TensorOutOfOrder as error:
            self._parts.fail(error)
        finally:
            self._adding = None

    def _added(self, tensor_id: int, piece: Piece) -> None:
        if not piece.is_last:
            return
        try:
            tensor = self._assembler.complete()
        except RefusedTensor as refused:
            self._parts.counts.refused(refused.fault)
            if self._arrivals.came_corrupt(tensor_id):
                self._sender.say_road(
                    RoadMessage(0, RoadStep.FAILED, reason=str(refused), through=tensor_id - 1)
                )
            return
        self._arrived(tensor_id, tensor, self._began_at, None)

    def _arrived(
        self, tensor_id: int, tensor: WireTensor, began_at: float, road: RoadKind | None
    ) -> None:
        if self._arrivals.has(tensor_id):
            # By a road, and in chunks as well, after the road was given up.
            self._say_taken(0.0)
            return
        parts, byte_count = self._parts, len(tensor.data)
        now = parts.clock()
        kind = road if road is not None else self._base
        parts.counts.received(byte_count, now - began_at, kind, by_road=road is not None)
        for each in self._arrivals.arrive(tensor_id, tensor):
            self._hand_on(each)
        held = self._inbox_bytes + self._arrivals.early_bytes
        if held > 2 * parts.limits.budget_bytes + parts.limits.most_tensor_bytes:
            raise TensorOutOfOrder(f"the other end sent {held} bytes beyond what was taken")
        self._check_count()
        if byte_count < LARGE_BYTES:
            self._say_taken(parts.limits.taken_delay_seconds)
            return
        self._say_taken(0.0)
        parts.observe(Received(by_road=road is not None))

    def _check_count(self) -> None:
        count = len(self._inbox) + self._arrivals.early_count
        if count > 3 * MOST_TENSORS:
            raise TensorOutOfOrder(f"the other end sent {count} tensors beyond what was taken")

    def _hand_on(self, tensor: WireTensor) -> None:
        take = self._take
        if take is None:
            self._inbox.append(tensor)
            self._inbox_bytes += len(tensor.data)
            self._changed.set()
            return
        try:
            take(tensor)
        except RefusedTensor as refused:
            self._parts.counts.refused(refused.fault)

    def _say_taken(self, delay: float) -> None:
        """Tells what has arrived, unless too much of it waits to be received."""
        is_full = (
            self._inbox_bytes > self._parts.limits.budget_bytes or len(self._inbox) > MOST_TENSORS
        )
        if is_full or self._closed is not None:
            return
        if delay:
            if self._saying is None:
                loop = asyncio.get_running_loop()
                self._saying = loop.call_later(delay, self._say_taken, 0.0)
            return
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None
        self._sender.say_taken(self._arrivals.through)
