"""Serves links on which verifiers read back what an archive of this node keeps.

The archive belongs to the thread of its data connection; positions that are
deposited stay as they are, so they are copied from threads of this service.
"""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, FINE_SEGMENT
from kakeya_fleet.engine.errors import RestorerLost, RestorerRefused
from kakeya_fleet.engine.restoration.chunk_reads import CHUNKS_UNDER_WAY
from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.protocol.contract import LinkClosed, TensorLink
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.protocol.tensor import WireTensor
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.kv_read_wire import (
    MOST_READS_BYTES,
    BadRead,
    numbers_of,
    piece_to_wire,
    reads_from_wire,
    refusal_to_wire,
    stored_to_wire,
)
from kakeya_fleet.node.roles.archive.piece_memory import PieceMemory
from kakeya_fleet.node.rpc.refusals import ArchiveNotFound, Draining

PIECE_BYTES = 4 << 20
"""Of one tensor at most, as far as a segment allows: what a ring carries best."""
DEPOSIT_SECONDS = 2.0
"""A deposit and a read of it travel apart: so long the read waits for the deposit."""
MOST_UNDER_WAY_BYTES = 4 * PIECE_BYTES
"""Of one link: as many more pieces keep no wire from standing still."""
FAREWELL_SECONDS = 1.0
THREADS = 4


class KvReads:
    """The links for keys and values of one node. Belongs to the event loop's thread.

    Implements `node.links.transport.link_service.LinkHandler`.
    """

    def __init__(self, archives: Archives, *, deposit_seconds: float = DEPOSIT_SECONDS) -> None:
        self._archives = archives
        self._deposit_seconds = deposit_seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="archive-read")

    def open(self, request: LinkRequest) -> LinkService:
        """A link to the archive. Raises `ArchiveNotFound` unless a session uses it."""
        limits = link_limits(self._archives.in_use(request.archive_id).opening.shape)
        return LinkService(limits, limits.budget_bytes, partial(self._serve, request.archive_id))

    async def _serve(
        self,
        archive_id: str,
        link: TensorLink,
        _want_encoder: bool,  # noqa: FBT001
    ) -> None:
        """Answers reads until the link or the archive ends."""
        try:
            archive = self._archives.in_use(archive_id)
            reading = KvReading(link, archive, self._archives, self._threads, self._deposit_seconds)
            await reading.serve()
        except (RestorerRefused, RestorerLost, ArchiveNotFound, Draining, BadRead) as error:
            with suppress(LinkClosed, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await link.send(refusal_to_wire(str(error)))
                    await link.flush()

    def close(self) -> None:
        """Ends the threads; the links were closed before. Blocks."""
        self._threads.shutdown()


class KvReading:
    """One link's reads."""

    def __init__(
        self,
        link: TensorLink,
        archive: Archive,
        archives: Archives,
        threads: ThreadPoolExecutor,
        deposit_seconds: float,
    ) -> None:
        self._link = link
        self._archive = archive
        self._archives = archives
        self._threads = threads
        self._deposit_seconds = deposit_seconds
        self._memory = PieceMemory()
        self._told_bytes = 0
        self._changed = asyncio.Event()
        # One is sent, one waits, and one is read meanwhile.
        self._answers: asyncio.Queue[WireTensor] = asyncio.Queue(maxsize=1)
        shape = archive.opening.shape
        self._piece_positions = {
            layer: _piece_positions(shape.layer_bytes_per_position(layer))
            for layer in shape.group_of
        }

    async def serve(self) -> None:
        """Answers reads in their order, until the archive ends.

        Raises `RestorerRefused`, `RestorerLost`, `ArchiveNotFound`, `Draining`,
        `BadRead`, `LinkClosed`.
        """
        loop = asyncio.get_running_loop()

        def changed() -> None:
            # A loop that was closed has no link left.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake)

        self._archive.on_change.append(changed)
        parts = (self._answering(), self._sending(), self._released())
        tasks = [asyncio.create_task(part, name="archive-read") for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._archive.on_change.remove(changed)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
        raise RestorerLost("the archive was released")

    async def _answering(self) -> None:
        while True:
            for read in reads_from_wire(await self._link.receive()):
                await self._answer(read)

    async def _sending(self) -> None:
        while True:
            await self._link.send(await self._answers.get())

    async def _released(self) -> None:
        while not self._archive.released:
            await self._changed.wait()

    def _wake(self) -> None:
        """On the loop's thread, after a change: who waited before looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, read: KvRead) -> None:
        positions = self._piece_positions.get(read.layer)
        sink = self._archive.opening.shape.sink
        if positions is None or not sink <= read.first < read.end <= read.first + CHUNK_KEYS:
            raise RestorerRefused(
                f"nothing is kept of layer {read.layer} as positions {read.first} to {read.end}"
            )
        self._archives.used(self._archive)
        await self._deposited(read.end)
        stored = self._archive.store.stored_bytes
        if stored != self._told_bytes:
            self._told_bytes = stored
            await self._answers.put(stored_to_wire(stored))
        loop = asyncio.get_running_loop()
        first = read.first
        while first < read.end:
            # Pieces end where segments do.
            end = min(read.end, (first // FINE_SEGMENT) * FINE_SEGMENT + positions)
            numbers = await loop.run_in_executor(
                self._threads, self._copied, KvRead(read.layer, first, end)
            )
            await self._answers.put(piece_to_wire(read.layer, first, numbers))
            first = end

    def _copied(self, read: KvRead) -> Raw:
        """In a thread: a piece."""
        shape = self._archive.opening.shape
        of = shape.group_of[read.layer].shape
        sizes = (2, of.kv_heads, read.end - read.first, of.head_dim)
        memory = self._memory.take(math.prod(sizes) * shape.item_bytes)
        into = numbers_of(shape.dtype, memory).reshape(sizes)
        try:
            return self._archive.store.read(read.layer, read.first, read.end, into)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error

    async def _deposited(self, end: int) -> None:
        """Waits until the positions below `end` are there."""
        store = self._archive.store
        try:
            async with asyncio.timeout(self._deposit_seconds):
                while store.length < end:
                    await self._changed.wait()
        except TimeoutError:
            raise RestorerRefused(
                f"positions below {end} are asked for, those below {store.length} were deposited"
            ) from None


def link_limits(shape: EvictedShape) -> LinkLimits:
    """What is under way at most of what a verifier asks for ahead, and the longest request."""
    largest = max(map(shape.layer_bytes_per_position, shape.group_of))
    return LinkLimits(
        budget_bytes=min(MOST_UNDER_WAY_BYTES, CHUNKS_UNDER_WAY * CHUNK_KEYS * largest),
        most_tensor_bytes=MOST_READS_BYTES,
    )


def _piece_positions(position_bytes: int) -> int:
    """Positions of a piece: whole segments."""
    return max(1, PIECE_BYTES // position_bytes // FINE_SEGMENT) * FINE_SEGMENT
