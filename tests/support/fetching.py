"""A verifier's thread and an archive's node on one loop, with a link between them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.group_store import TorchPool, torch_pool
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.node.links.contract import LinkClosed
from kakeya_fleet.node.links.wire_tensor import WireTensor
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.kv_fetch_link import FetchWatch, KvLinkSource
from kakeya_fleet.node.roles.archive.kv_reads import KvReads
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault

SECONDS = 5.0


class QueueEnd:
    """One end of a link of two queues; `spoil` changes what it sends, or drops it with None."""

    def __init__(self, outgoing: asyncio.Queue[Any], incoming: asyncio.Queue[Any]) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self.closed = False
        self.sent: list[WireTensor] = []
        self.spoil: Callable[[WireTensor], WireTensor | None] = lambda tensor: tensor

    async def send(self, tensor: WireTensor) -> None:
        if self.closed:
            raise LinkClosed("closed here")
        spoiled = self.spoil(tensor)
        if spoiled is not None:
            self.sent.append(spoiled)
            self._outgoing.put_nowait(spoiled)

    async def flush(self) -> None:
        return

    async def receive(self) -> WireTensor:
        if self.closed:
            raise LinkClosed("closed here")
        tensor = await self._incoming.get()
        if tensor is None:
            self.closed = True
            raise LinkClosed("the other end left")
        return tensor

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._outgoing.put_nowait(None)


def queue_link() -> tuple[QueueEnd, QueueEnd]:
    there, back = asyncio.Queue[Any](), asyncio.Queue[Any]()
    return QueueEnd(there, back), QueueEnd(back, there)


class TorchStores:
    """Stores as a node's archives make them."""

    arithmetic = "test"
    budget_bytes = 256 << 20

    def __init__(self) -> None:
        self.pool: TorchPool = torch_pool(self.budget_bytes)

    @property
    def used_bytes(self) -> int:
        return self.pool.used_bytes

    def check(self, opening: Opening) -> None:
        return

    def make(self, opening: Opening) -> TorchEvictedStore:
        return TorchEvictedStore(opening.shape, opening.restorer, self.pool)


@dataclass
class Fetching:
    """A verifier's thread and an archive's node on one loop, with a link between them.

    `deposits` hand on what is deposited at once, unless a test holds them back.
    """

    shape: EvictedShape
    stores: TorchStores = field(default_factory=TorchStores)
    faults: list[RestorerFault] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    ends: list[tuple[QueueEnd, QueueEnd]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    deadline_seconds: float = SECONDS
    deposit_seconds: float = SECONDS
    link: Callable[[], tuple[Any, Any]] = queue_link

    def __post_init__(self) -> None:
        numbers = map(str, itertools.count())
        self.archives = Archives(self.stores, clock=lambda: 0.0, ids=lambda: next(numbers))
        self.reads = KvReads(self.archives, deposit_seconds=self.deposit_seconds)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="verifier")
        self.loop = asyncio.get_running_loop()

    def archive(self, spec: Any) -> Archive:
        opened = self.archives.open(Opening(spec, self.shape, "digest"))
        return self.archives.attach(opened.archive_id)

    async def source(self, archive: Archive) -> KvLinkSource:
        caller, served = self.link()
        self.ends.append((caller, served))
        request = wire.OpenLinkRequest(archive_id=archive.archive_id)
        self.reads.check(request)

        async def serve() -> None:
            try:
                await self.reads.serve(served, request)
            except LinkClosed:
                return
            finally:
                await served.close()

        self.tasks.append(asyncio.create_task(serve()))
        watch = FetchWatch(self.faults.append, lambda _seconds: None, self.read_bytes.append)
        source = KvLinkSource(caller, self.shape, watch, deadline_seconds=self.deadline_seconds)
        self.tasks.append(source.task)
        return source

    def open_source(self, kept: EvictedStore) -> KvLinkSource:
        """For the verifier's thread."""
        assert isinstance(kept, ArchiveStore)
        opening = asyncio.run_coroutine_threadsafe(self.source(kept.archive), self.loop)
        return opening.result(SECONDS)

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self.loop.run_in_executor(self.thread, function, *args)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.thread.shutdown()
        self.reads.close()


class ArchiveStore:
    """The verifier's end of a data connection, without one: deposits and forks go to `archives`."""

    def __init__(self, fetching: Fetching, archive: Archive) -> None:
        self.fetching = fetching
        self.archive = archive
        self.deposit_now: Callable[[Callable[[], None]], None] = lambda deposit: deposit()
        self.length = archive.store.length

    @property
    def spec(self) -> Any:
        return self.archive.opening.restorer

    encoder = None
    stored_bytes = 0

    def deposit(self, first: int, evicted: Any) -> None:
        archives, archive = self.fetching.archives, self.archive
        self.length = first + evicted.groups[0].shape[3]
        self.deposit_now(lambda: archives.deposit(archive, first, evicted))

    def fork(self, length: int) -> ArchiveStore:
        forked = self.fetching.archives.fork(self.archive, length)
        return ArchiveStore(self.fetching, self.fetching.archives.attach(forked.archive_id))

    def release(self) -> None:
        self.fetching.archives.release(self.archive)
