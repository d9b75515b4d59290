"""The sending half of a link's end: what sets out when, by which way."""

from __future__ import annotations

import asyncio
from collections import deque

from kakeya_fleet.node.links.ends.control_stream import ControlStream, Packed
from kakeya_fleet.node.links.ends.road_run import RoadRun
from kakeya_fleet.node.links.ends.shared_parts import SharedParts, checksum
from kakeya_fleet.node.links.protocol.chunks import CHUNK_BYTES, chunk_of, offsets_of
from kakeya_fleet.node.links.protocol.contract import LinkClosed
from kakeya_fleet.node.links.protocol.delivery import CHUNKS, Kept, Outbox
from kakeya_fleet.node.links.protocol.messages import Announcement, RoadMessage, Taken, head_of
from kakeya_fleet.node.links.protocol.promotion_events import SetOut, Timed, Took
from kakeya_fleet.node.links.protocol.road_use import is_compared, takes_road
from kakeya_fleet.node.links.protocol.settings import INLINE_BYTES, LARGE_BYTES
from kakeya_fleet.node.links.protocol.tensor import WireTensor


class TensorSender:
    """Sends one link's tensors. Belongs to the event loop's thread."""

    def __init__(self, parts: SharedParts, stream: ControlStream) -> None:
        self._parts = parts
        self._stream = stream
        self._outbox = Outbox(parts.limits.budget_bytes)
        self._road: RoadRun | None = None
        self._wake = asyncio.Event()
        self._road_messages: deque[RoadMessage] = deque()
        self._taken_to_say = 0
        self._taken_said = 0
        self._waiting: deque[tuple[WireTensor, asyncio.Future[None]]] = deque()
        self._flushing: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._alone: set[int] = set()
        self._arrived_at = 0.0
        self._closed: str | None = None

    @property
    def unsaid_count(self) -> int:
        """Steps of roads that wait to be written."""
        return len(self._road_messages)

    def try_send(self, tensor: WireTensor) -> bool:
        """Takes a tensor if there is room for it now. Raises `LinkClosed`."""
        self._refuse_when_closed()
        if self._waiting or not self._outbox.has_room(len(tensor.data)):
            return False
        self._take(tensor)
        return True

    async def send(self, tensor: WireTensor) -> None:
        """Takes a tensor, after those that wait already. Raises `LinkClosed`."""
        if self.try_send(tensor):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tensor, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            # What was admitted meanwhile travels all the same.
            self._waiting = deque(each for each in self._waiting if each[1] is not admitted)
            self._admit()
            raise

    async def flush(self) -> None:
        """Waits until all that was taken has arrived. Raises `LinkClosed`."""
        self._refuse_when_closed()
        if self._outbox.taken >= self._outbox.last_id:
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushing.append((self._outbox.last_id, arrived))
        await arrived

    def say_taken(self, through: int) -> None:
        """Tells the other end what has arrived here; the latest counts."""
        self._taken_to_say = through
        self._wake.set()

    def say_road(self, message: RoadMessage) -> None:
        """Tells the other end a step of a road, ahead of tensors."""
        self._road_messages.append(message)
        self._wake.set()

    def use(self, road: RoadRun | None) -> None:
        """What sets out from now on may go by that road."""
        self._road = road
        self._wake.set()

    def taken(self, through: int) -> None:
        """The other end has every tensor up to this. Raises `TensorOutOfOrder`."""
        now = self._parts.clock()
        for kept in self._outbox.take(through):
            self._measure(kept, now)
        while self._flushing and self._flushing[0][0] <= self._outbox.taken:
            _done(self._flushing.popleft()[1])
        self._admit()
        self._wake.set()

    def road_failed(self, generation: int) -> None:
        """What went by that road and has not arrived goes again."""
        self._outbox.road_failed(generation)
        self._wake.set()

    def came_corrupt(self, tensor_id: int) -> None:
        """That tensor goes again."""
        self._outbox.came_corrupt(tensor_id)
        self._wake.set()

    def close(self, reason: str) -> None:
        """Nothing more is taken; all who wait get `LinkClosed`."""
        self._closed = reason
        self._outbox.clear()
        for _, future in (*self._waiting, *self._flushing):
            if not future.done():
                future.set_exception(LinkClosed(reason))
        self._waiting.clear()
        self._flushing.clear()

    async def run(self) -> None:
        """Writes what is to be written, until cancelled. Raises `ControlEnded`."""
        while True:
            self._wake.clear()
            await self._write_urgent()
            kept = self._next()
            if kept is not None:
                await self._set_out(kept)
            elif not self._has_urgent():
                await self._wake.wait()

    def _next(self) -> Kept | None:
        """What sets out now. While two ways are compared, tensors travel one by one."""
        kept = self._outbox.next()
        if kept is None or kept.is_again:
            return kept
        is_alone = not self._outbox.under_way
        return kept if is_alone or not is_compared(self._parts.promotion, kept.byte_count) else None

    async def _set_out(self, kept: Kept) -> None:
        road = self._road
        if road is not None and not kept.is_again and self._goes_by_road(kept.byte_count):
            crc = await checksum(kept.tensor.data)
            # It may have failed meanwhile.
            if self._road is road:
                await self._announce(kept, road, crc)
                return
        self._sets_out(kept, CHUNKS)
        if kept.byte_count < INLINE_BYTES:
            await self._stream.write(self._chunk(kept, 0))
            return
        await self._write_chunks(kept)

    def _goes_by_road(self, byte_count: int) -> bool:
        by_road = takes_road(self._parts.promotion, byte_count)
        if byte_count >= LARGE_BYTES:
            self._parts.observe(SetOut(byte_count))
        return by_road

    async def _announce(self, kept: Kept, road: RoadRun, crc: int) -> None:
        self._sets_out(kept, road.generation)
        head = head_of(kept.tensor)
        announcement = Announcement(kept.tensor_id, head, crc, road.generation)
        await self._stream.write(self._stream.pack(announcement))
        # Behind the announcement, so that the other end is soon ready for it.
        road.leaving.put_nowait(kept)

    async def _write_chunks(self, kept: Kept) -> None:
        """Each chunk is copied and checked in another thread while the one before is written."""
        following: asyncio.Task[Packed] | None = None
        try:
            for offset in offsets_of(kept.tensor):
                packed = await (following or self._chunk_in_thread(kept, offset))
                later = offset + CHUNK_BYTES
                following = (
                    asyncio.create_task(self._chunk_in_thread(kept, later))
                    if later < kept.byte_count
                    else None
                )
                await self._write_urgent()
                await self._stream.write(packed)
        finally:
            if following is not None:
                following.cancel()

    async def _chunk_in_thread(self, kept: Kept, offset: int) -> Packed:
        return await asyncio.to_thread(self._chunk, kept, offset)

    def _chunk(self, kept: Kept, offset: int) -> Packed:
        link_id = self._parts.link_id
        return self._stream.pack(chunk_of(kept.tensor, link_id, kept.tensor_id, offset))

    def _sets_out(self, kept: Kept, way: int) -> None:
        if not self._outbox.under_way:
            self._alone.add(kept.tensor_id)
        self._outbox.sent(kept.tensor_id, way, self._parts.clock())

    def _has_urgent(self) -> bool:
        return bool(self._road_messages) or self._taken_to_say > self._taken_said

    async def _write_urgent(self) -> None:
        while self._has_urgent():
            message: RoadMessage | Taken
            if self._road_messages:
                message = self._road_messages.popleft()
            else:
                self._taken_said = self._taken_to_say
                message = Taken(self._taken_said)
            await self._stream.write(self._stream.pack(message))

    def _measure(self, kept: Kept, now: float) -> None:
        was_alone = kept.tensor_id in self._alone
        self._alone.discard(kept.tensor_id)
        road = self._road
        by_road = kept.way != CHUNKS
        kind = road.kind if road is not None and by_road else self._stream.base
        # Of several under way each counts from the arrival of the one before it.
        seconds = now - max(kept.began_at, self._arrived_at)
        self._arrived_at = now
        self._parts.counts.sent(kept.byte_count, seconds, kind)
        if was_alone and not kept.is_again and kept.byte_count >= LARGE_BYTES:
            self._parts.observe(Timed(kept.byte_count, now - kept.began_at, by_road))

    def _admit(self) -> None:
        while self._waiting and self._outbox.has_room(len(self._waiting[0][0].data)):
            tensor, admitted = self._waiting.popleft()
            if not admitted.done():
                self._take(tensor)
                admitted.set_result(None)

    def _take(self, tensor: WireTensor) -> None:
        self._outbox.add(tensor)
        self._wake.set()
        # Small tensors change nothing, and deltas of features must not be held up.
        if len(tensor.data) >= LARGE_BYTES:
            self._parts.observe(Took())

    def _refuse_when_closed(self) -> None:
        if self._closed is not None:
            raise LinkClosed(self._closed)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
