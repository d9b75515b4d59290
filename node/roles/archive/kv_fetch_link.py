"""The verifier's end of a link for keys and values: read by its thread, carried by the loop.

The thread that computes never touches a link, and the event loop never waits for
the thread: requests go over as callbacks, what arrives lies in a queue.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.protocol.changes import LinkChange, LinkLog
from kakeya_fleet.node.links.protocol.contract import LinkClosed, TensorLink
from kakeya_fleet.node.links.protocol.tensor import WireTensor
from kakeya_fleet.node.roles.archive.kv_read_wire import (
    MOST_READS,
    REFUSED,
    STORED,
    BadRead,
    piece_from_wire,
    reads_to_wire,
    refusal_from_wire,
    stored_from_wire,
)
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault

SLACK_BYTES = 64 << 10
"""Of tensors that are no keys and values: one that sends more floods the queue."""
STORED_BYTES = 16
"""What may come besides with the answer to a read."""

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class FetchWatch:
    """Who hears of reads: of every source that is lost, of seconds that a piece was waited for,
    of bytes that came. Called by the verifier's thread.
    """

    on_fault: Callable[[RestorerFault], None]
    on_wait: Callable[[float], None]
    on_bytes: Callable[[int], None]


class LinkNews:
    """Where changes of what carries one link are noted: its session's log, once it has one."""

    def __init__(self) -> None:
        self.log = LinkLog()

    def add(self, change: LinkChange) -> None:
        """Notes a change."""
        self.log.add(change)


class KvLinkSource:
    """Reads what one archive keeps; see `engine.restoration.keys_values_source`.

    `request`, `next_chunk` and `close` are for the verifier's thread; the rest
    happens on the loop's.
    """

    def __init__(
        self,
        link: TensorLink,
        shape: EvictedShape,
        watch: FetchWatch,
        *,
        deadline_seconds: float,
        news: LinkNews | None = None,
    ) -> None:
        """On the loop's thread. Takes over the link; no piece is waited for longer than that.

        `news` hears of the link's changes.
        """
        self.news = news if news is not None else LinkNews()
        self._link = link
        self._shape = shape
        self._watch = watch
        self._deadline_seconds = deadline_seconds
        self._loop = asyncio.get_running_loop()
        self._stored_bytes = 0
        self._lost = ""
        self._due: deque[KvRead] = deque()
        """What was requested and has not come; the first may have come in part."""
        self._unsent: deque[KvRead] = deque()
        self._wanted = asyncio.Event()
        self._granted_bytes = SLACK_BYTES
        """On the loop's thread: bytes that may come."""
        self._arrived: queue.SimpleQueue[WireTensor | str] = queue.SimpleQueue()
        """Tensors, and at the end why there is no other."""
        self._task = asyncio.create_task(self._carry(), name="kv-fetch")

    @property
    def stored_bytes(self) -> int:
        """Bytes that keep the positions, as the archive told last."""
        return self._stored_bytes

    @property
    def task(self) -> asyncio.Task[None]:
        """What carries it, until the link has ended."""
        return self._task

    def request(self, reads: Sequence[KvRead]) -> None:
        """Asks for chunks."""
        if self._lost:
            raise self._error()
        self._due.extend(reads)
        self._unsent.extend(reads)
        self._on_loop(self._wanted.set)

    def next_chunk(self) -> tuple[int, Raw]:
        """The next piece. Raises `RestorerLost`."""
        while True:
            tensor = self._next()
            if tensor.name == STORED:
                self._stored_bytes = self._read(stored_from_wire, tensor)
            elif tensor.name == REFUSED:
                self._lose(RestorerFault.REFUSED, f"it refused: {refusal_from_wire(tensor)}")
            else:
                return self._piece(tensor)

    def close(self) -> None:
        """Ends the link."""
        self._lost = self._lost or "it was closed"
        self._on_loop(self._task.cancel)

    def _next(self) -> WireTensor:
        if self._lost:
            raise self._error()
        began = time.perf_counter()
        try:
            arrived = self._arrived.get(timeout=self._deadline_seconds)
        except queue.Empty:
            self._lose(RestorerFault.DEADLINE, f"nothing came within {self._deadline_seconds:g} s")
        self._watch.on_wait(time.perf_counter() - began)
        if isinstance(arrived, str):
            self._lose(RestorerFault.UNREACHABLE, arrived)
        return arrived

    def _piece(self, tensor: WireTensor) -> tuple[int, Raw]:
        if not self._due:
            self._lose(RestorerFault.PROTOCOL, "something came that was not asked for")
        due = self._due[0]
        numbers = self._read(lambda of: piece_from_wire(of, due.layer), tensor)
        first = tensor.first_position
        end = first + (numbers.shape[2] if numbers.ndim == 4 else 0)
        if first != due.first or not first < end <= due.end:
            self._lose(
                RestorerFault.PROTOCOL,
                f"positions {first} to {end} came where {due.first} to {due.end} were due",
            )
        if end == due.end:
            self._due.popleft()
        else:
            self._due[0] = KvRead(due.layer, end, due.end)
        self._watch.on_bytes(numbers.nbytes)
        return first, numbers

    def _read(self, read: Callable[[WireTensor], Content], tensor: WireTensor) -> Content:
        try:
            return read(tensor)
        except BadRead as error:
            self._lose(RestorerFault.PROTOCOL, str(error))

    def _lose(self, fault: RestorerFault, words: str) -> NoReturn:
        self.close()
        self._lost = words
        self._watch.on_fault(fault)
        raise self._error(fault=fault.value)

    def _error(self, **metadata: str) -> RestorerLost:
        return RestorerLost(f"the link to the session's archive was lost: {self._lost}", **metadata)

    async def _carry(self) -> None:
        """Sends reads and takes what comes, until either ends the link."""
        words = "it was closed"
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._send())
                both.create_task(self._receive())
        except* LinkClosed as closed:
            words = str(closed.exceptions[0])
        finally:
            self._arrived.put(words)
            await self._link.close()

    async def _send(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while count := min(len(self._unsent), MOST_READS):
                reads = [self._unsent.popleft() for _ in range(count)]
                self._granted_bytes += sum(map(self._answer_bytes, reads))
                await self._link.send(reads_to_wire(reads))

    async def _receive(self) -> None:
        while True:
            tensor = await self._link.receive()
            self._granted_bytes -= max(1, len(tensor.data))
            if self._granted_bytes < 0:
                raise LinkClosed("the archive sent more than it was asked for")
            self._arrived.put(tensor)

    def _answer_bytes(self, read: KvRead) -> int:
        each = self._shape.layer_bytes_per_position(read.layer)
        return (read.end - read.first) * each + STORED_BYTES

    def _on_loop(self, callback: Callable[[], object]) -> None:
        # A loop that is closed has ended the link, and told so.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
