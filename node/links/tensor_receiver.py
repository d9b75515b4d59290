"""The receiving half of a link's end: what comes by any way, checked and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import LinkClosed, RoadKind
from kakeya_fleet.node.links.delivery import MOST_TENSORS, Arrivals
from kakeya_fleet.node.links.link_counts import LinkCounts
from kakeya_fleet.node.links.link_limits import INLINE_BYTES, LARGE_BYTES, LinkLimits
from kakeya_fleet.node.links.promotion import Promotion
from kakeya_fleet.node.links.refused_tensor import RefusedTensor, TensorFault
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.tensor_chunks import Piece, TensorAssembler, check_head
from kakeya_fleet.node.links.tensor_sender import TensorSender
from kakeya_fleet.node.links.used_road import UsedRoad, checksum, deadline
from kakeya_fleet.node.links.wire_tensor import WireTensor
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

TakeTensor = Callable[[WireTensor], None]
"""Takes each tensor as it arrives, in place of `receive`. Raises `RefusedTensor`."""


@dataclass(frozen=True, slots=True)
class ReceivingParts:
    """What the receiver shares with its link's end.

    `base` carries the chunks, `fail` ends the link, `clock` gives seconds. `judge` is
    called when a large tensor came.
    """

    sender: TensorSender
    promotion: Promotion
    counts: LinkCounts
    limits: LinkLimits
    base: RoadKind
    fail: Callable[[Exception], None]
    clock: Callable[[], float]
    judge: Callable[[], None]
    take: TakeTensor | None = None


class TensorReceiver:
    """Receives one link's tensors. Belongs to the event loop's thread."""

    def __init__(self, link_id: str, parts: ReceivingParts) -> None:
        self._parts = parts
        self._arrivals = Arrivals()
        self._assembler = TensorAssembler(link_id, parts.limits.most_tensor_bytes, self._arrivals)
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

    async def chunk(self, chunk: wire.TensorChunk) -> None:
        """Takes a chunk; that of much data is copied and checked after this returned.

        Raises `TensorOutOfOrder`.
        """
        adding = self._adding
        if adding is not None:
            await asyncio.wait((adding,))
        if chunk.offset_bytes == 0:
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

    def announced(self, announcement: wire.TensorAnnouncement, road: UsedRoad | None) -> None:
        """A tensor comes over `road`, None for one that has failed. Raises `TensorOutOfOrder`."""
        check_head(announcement, self._parts.limits.most_tensor_bytes)
        self._arrivals.announce(announcement.tensor_id)
        self._check_count()
        if road is not None:
            road.coming.put_nowait(announcement)

    async def receive_all(self, road: UsedRoad) -> None:
        """Takes what is announced on a road, until cancelled.

        Raises `RoadFailed`, also for a tensor that comes corrupt.
        """
        most_bytes = self._parts.limits.most_tensor_bytes
        while True:
            head = await road.coming.get()
            began_at = self._parts.clock()
            total = check_head(head, most_bytes)
            data = await road.road.receive(total, seconds=deadline(total))
            if len(data) != total or await checksum(data) != head.crc32c:
                self._parts.counts.refused(TensorFault.CORRUPT)
                raise RoadFailed("a tensor came corrupt")
            tensor = WireTensor(head.name, head.dtype, tuple(head.shape), data, head.first_position)
            self._arrived(head.tensor_id, tensor, began_at, road)

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
                self._parts.sender.say_road(
                    wire.RoadMessage(
                        step=wire.ROAD_STEP_FAILED,
                        reason=str(refused),
                        through_tensor_id=tensor_id - 1,
                    )
                )
            return
        self._arrived(tensor_id, tensor, self._began_at, None)

    def _arrived(
        self, tensor_id: int, tensor: WireTensor, began_at: float, road: UsedRoad | None
    ) -> None:
        if self._arrivals.has(tensor_id):
            # By a road, and in chunks as well, after the road was given up.
            self._say_taken(0.0)
            return
        parts, byte_count = self._parts, len(tensor.data)
        now = parts.clock()
        kind = road.road.kind if road is not None else parts.base
        parts.counts.received(byte_count, now - began_at, kind, by_road=road is not None)
        is_small = byte_count < LARGE_BYTES
        if not is_small:
            parts.promotion.saw(byte_count, now)
            parts.promotion.received(byte_count, now, by_road=road is not None)
            parts.judge()
        for each in self._arrivals.arrive(tensor_id, tensor):
            self._hand_on(each)
        held = self._inbox_bytes + self._arrivals.early_bytes
        if held > 2 * parts.limits.budget_bytes + parts.limits.most_tensor_bytes:
            raise TensorOutOfOrder(f"the other end sent {held} bytes beyond what was taken")
        self._check_count()
        self._say_taken(parts.limits.taken_delay_seconds if is_small else 0.0)

    def _check_count(self) -> None:
        count = len(self._inbox) + self._arrivals.early_count
        if count > 3 * MOST_TENSORS:
            raise TensorOutOfOrder(f"the other end sent {count} tensors beyond what was taken")

    def _hand_on(self, tensor: WireTensor) -> None:
        take = self._parts.take
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
        self._parts.sender.say_taken(self._arrivals.through)
