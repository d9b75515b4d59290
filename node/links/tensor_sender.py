"""The sending half of a link's end: what sets out when, by which way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import LinkClosed
from kakeya_fleet.node.links.control_stream import ControlStream, Envelope
from kakeya_fleet.node.links.delivery import CHUNKS, Kept, Outbox
from kakeya_fleet.node.links.link_counts import LinkCounts
from kakeya_fleet.node.links.link_limits import INLINE_BYTES
from kakeya_fleet.node.links.promotion import Promotion
from kakeya_fleet.node.links.tensor_chunks import CHUNK_BYTES, fill_chunk, offsets_of
from kakeya_fleet.node.links.used_road import UsedRoad, checksum
from kakeya_fleet.node.links.wire_tensor import WireTensor


@dataclass(frozen=True, slots=True)
class SendingParts:
    """What the sender shares with its link's end. `clock` gives seconds."""

    stream: ControlStream
    outbox: Outbox
    promotion: Promotion
    counts: LinkCounts
    clock: Callable[[], float]


class TensorSender:
    """Sends one link's tensors. Belongs to the event loop's thread."""

    def __init__(self, link_id: str, parts: SendingParts) -> None:
        self._link_id = link_id
        self._stream = parts.stream
        self._outbox = parts.outbox
        self._promotion = parts.promotion
        self._counts = parts.counts
        self._clock = parts.clock
        self._road: UsedRoad | None = None
        self._wake = asyncio.Event()
        self._road_messages: deque[wire.RoadMessage] = deque()
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
        self._outbox.add(tensor)
        self._wake.set()
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

    def say_road(self, message: wire.RoadMessage) -> None:
        """Tells the other end a step of a road, ahead of tensors."""
        self._road_messages.append(message)
        self._wake.set()

    def use(self, road: UsedRoad | None) -> None:
        """What sets out from now on may go by that road."""
        self._road = road
        self._wake.set()

    def taken(self, through: int) -> None:
        """The other end has every tensor up to this. Raises `TensorOutOfOrder`."""
        now = self._clock()
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
        is_compared = self._promotion.is_trying(kept.byte_count)
        return None if is_compared and self._outbox.under_way else kept

    async def _set_out(self, kept: Kept) -> None:
        road = self._road
        if road is not None and not kept.is_again and self._promotion.takes_road(kept.byte_count):
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

    async def _announce(self, kept: Kept, road: UsedRoad, crc: int) -> None:
        self._sets_out(kept, road.generation)
        tensor = kept.tensor
        envelope = self._stream.envelope()
        announcement = envelope.announcement
        announcement.tensor_id = kept.tensor_id
        announcement.name = tensor.name
        announcement.dtype = tensor.dtype
        announcement.shape.extend(tensor.shape)
        announcement.first_position = tensor.first_position
        announcement.crc32c = crc
        announcement.generation = road.generation
        await self._stream.write(envelope)
        # Behind the announcement, so that the other end is soon ready for it.
        road.leaving.put_nowait(kept)

    async def _write_chunks(self, kept: Kept) -> None:
        """Each chunk is copied and checked in another thread while the one before is written."""
        following: asyncio.Task[Envelope] | None = None
        try:
            for offset in offsets_of(kept.tensor):
                envelope = await (following or self._chunk_in_thread(kept, offset))
                later = offset + CHUNK_BYTES
                following = (
                    asyncio.create_task(self._chunk_in_thread(kept, later))
                    if later < kept.byte_count
                    else None
                )
                await self._write_urgent()
                await self._stream.write(envelope)
        finally:
            if following is not None:
                following.cancel()

    async def _chunk_in_thread(self, kept: Kept, offset: int) -> Envelope:
        return await asyncio.to_thread(self._chunk, kept, offset)

    def _chunk(self, kept: Kept, offset: int) -> Envelope:
        envelope = self._stream.envelope()
        fill_chunk(envelope.chunk, kept.tensor, self._link_id, kept.tensor_id, offset)
        return envelope

    def _sets_out(self, kept: Kept, way: int) -> None:
        if not self._outbox.under_way:
            self._alone.add(kept.tensor_id)
        self._outbox.sent(kept.tensor_id, way, self._clock())

    def _has_urgent(self) -> bool:
        return bool(self._road_messages) or self._taken_to_say > self._taken_said

    async def _write_urgent(self) -> None:
        while self._has_urgent():
            envelope = self._stream.envelope()
            if self._road_messages:
                envelope.road.CopyFrom(self._road_messages.popleft())
            else:
                self._taken_said = self._taken_to_say
                envelope.taken.through_tensor_id = self._taken_said
            await self._stream.write(envelope)

    def _measure(self, kept: Kept, now: float) -> None:
        was_alone = kept.tensor_id in self._alone
        self._alone.discard(kept.tensor_id)
        road = self._road
        by_road = kept.way != CHUNKS
        kind = road.road.kind if road is not None and by_road else self._stream.base
        # Of several under way each counts from the arrival of the one before it.
        seconds = now - max(kept.began_at, self._arrived_at)
        self._arrived_at = now
        self._counts.sent(kept.byte_count, seconds, kind)
        if was_alone and not kept.is_again:
            self._promotion.measured(kept.byte_count, now - kept.began_at, by_road=by_road)

    def _admit(self) -> None:
        while self._waiting and self._outbox.has_room(len(self._waiting[0][0].data)):
            tensor, admitted = self._waiting.popleft()
            if not admitted.done():
                self._outbox.add(tensor)
                admitted.set_result(None)
                self._wake.set()

    def _refuse_when_closed(self) -> None:
        if self._closed is not None:
            raise LinkClosed(self._closed)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
