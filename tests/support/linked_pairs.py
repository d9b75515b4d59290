"""Both ends of a link in one process: over real gRPC sockets, or over memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from kakeya.v1 import tensor_pb2_grpc
from kakeya_fleet.node.links.ends.control_stream import ControlEnded, Packed
from kakeya_fleet.node.links.ends.link_end import LinkEnd, LinkIdentity, LinkUse
from kakeya_fleet.node.links.protocol.changes import LinkLog
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose, RoadKind, TensorLink
from kakeya_fleet.node.links.protocol.messages import Chunk, Message
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits, LinkSettings
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.roads.host_roads import RingProbe
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.grpc_settings import client_options, server_options
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

PURPOSE = LinkPurpose.FEATURES
REQUEST = LinkRequest(PURPOSE, sender_node_id="caller")
# Of 1 MiB each.
QUEUED_MESSAGES = 8


class _Way:
    """One direction."""

    def __init__(self) -> None:
        self._messages: deque[Packed] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    async def put(self, packed: Packed) -> None:
        while len(self._messages) >= QUEUED_MESSAGES and not self._is_closed:
            await self._change()
        if self._is_closed:
            raise ControlEnded("")
        self._messages.append(packed)
        self._changed.set()

    async def get(self) -> Packed:
        while not self._messages and not self._is_closed:
            await self._change()
        if not self._messages:
            raise ControlEnded("")
        self._changed.set()
        return self._messages.popleft()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def _change(self) -> None:
        # Its two ends never wait at once: one waits for a message, one for room.
        self._changed.clear()
        await self._changed.wait()


class MemoryStream:
    """One end: implements `ControlStream`, and stands for gRPC. A chunk takes `chunk_seconds`."""

    base = RoadKind.GRPC

    def __init__(self, incoming: _Way, outgoing: _Way) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.chunk_seconds = 0.0

    def pack(self, message: Message) -> Packed:
        return message

    async def write(self, packed: Packed) -> None:
        if self.chunk_seconds and isinstance(packed, Chunk):
            await asyncio.sleep(self.chunk_seconds)
        await self._outgoing.put(packed)

    async def read(self) -> Message:
        message = await self._incoming.get()
        assert isinstance(message, Message)
        return message

    async def close(self) -> None:
        """Ends both directions; what was written can still be read."""
        self._outgoing.close()
        self._incoming.close()


def memory_streams() -> tuple[MemoryStream, MemoryStream]:
    """Both ends of a stream: the caller's first."""
    there, back = _Way(), _Way()
    return MemoryStream(back, there), MemoryStream(there, back)


async def wound_up(link: TensorLink) -> None:
    """Waits until nothing of a link that ends by itself is left."""
    await link.wait_ended()
    await link.close()


class HandedOut:
    """A handler that gives the served end to whoever opened it, and stays with it."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._ends: asyncio.Queue[TensorLink] = asyncio.Queue()

    def open(self, request: LinkRequest) -> LinkService:
        """Every link may be opened."""
        return LinkService(self._limits, self._limits.budget_bytes, self._serve)

    async def _serve(self, link: TensorLink, want_encoder: bool) -> None:
        self._ends.put_nowait(link)
        await link.wait_ended()

    async def next(self) -> LinkEnd:
        """The served end of the link that was opened last."""
        link = await self._ends.get()
        assert isinstance(link, LinkEnd)
        return link


class Host:
    """One node's links."""

    def __init__(
        self,
        builders: Sequence[RoadBuilder] = (),
        mode: LinkMode = LinkMode.AUTO,
        settings: LinkSettings | None = None,
    ) -> None:
        self.metrics = NodeMetrics()
        self.builders = builders
        self.links = OpenLinks(builders, self.metrics, mode=mode, settings=settings)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def end(self, stream: MemoryStream, other: Host, use: LinkUse, *, is_caller: bool) -> LinkEnd:
        """An end over memory."""
        peer = "served" if is_caller else "caller"
        kinds = {builder.kind for builder in other.builders}
        identity = LinkIdentity("link", peer, PURPOSE, is_caller=is_caller)
        return self.links.end(stream, identity, kinds, use)


@dataclass
class InMemory:
    """A link over memory, its hosts, and what it told of; the caller's first."""

    hosts: tuple[Host, Host]
    streams: tuple[MemoryStream, MemoryStream]
    ends: tuple[LinkEnd, LinkEnd]
    log: LinkLog

    @classmethod
    def between(cls, *hosts: Host, limits: LinkLimits | None = None) -> InMemory:
        log, streams = LinkLog(), memory_streams()
        limits = limits if limits is not None else LinkLimits()
        caller = hosts[0].end(
            streams[0], hosts[1], LinkUse(limits, on_change=log.add), is_caller=True
        )
        served = hosts[1].end(streams[1], hosts[0], LinkUse(limits), is_caller=False)
        return cls((hosts[0], hosts[1]), streams, (caller, served), log)

    async def close(self) -> None:
        for host in self.hosts:
            await host.links.close()


@asynccontextmanager
async def linked_hosts(
    builders: tuple[Sequence[RoadBuilder], Sequence[RoadBuilder]],
    mode: LinkMode,
    limits: LinkLimits,
) -> AsyncIterator[tuple[LinkEnd, LinkEnd]]:
    """Both ends of a link over a gRPC server."""
    caller, served = (Host(each, mode) for each in builders)
    handler = HandedOut(limits)
    table = LinkTable(lambda: asyncio.get_running_loop().time(), allowances_of())
    servicer = TensorServicer(table, served.metrics, served.links, {PURPOSE: handler})
    interceptor = ErrorInterceptor(served.metrics)
    server = grpc.aio.server(interceptors=[interceptor], options=server_options())
    tensor_pb2_grpc.add_TensorServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=client_options())
    try:
        opened = await caller.links.open(
            channel,
            REQUEST,
            peer_node_id="served",
            timeout=PATIENCE_SECONDS,
            use=LinkUse(limits=limits),
        )
        yield opened.end, await handler.next()
    finally:
        await caller.links.close()
        await served.links.close()
        await server.stop(0)
        await channel.close()


@asynccontextmanager
async def linked_pair(
    kind: str = "memory", *, limits: LinkLimits | None = None
) -> AsyncIterator[tuple[LinkEnd, LinkEnd]]:
    """Both ends of an open link: the caller's first.

    `kind`: "memory" within the process; "grpc" chunks; "local" and "ring" wait until that
    road carries the link.
    """
    limits = limits if limits is not None else LinkLimits()
    if kind == "memory":
        link = InMemory.between(Host(), Host(), limits=limits)
        yield link.ends
        await link.close()
        return
    roads = await builders_of(kind), await builders_of(kind)
    async with linked_hosts(roads, LinkMode(kind), limits) as ends:
        await carried_by(RoadKind(kind), *ends)
        yield ends


async def builders_of(kind: str) -> tuple[RoadBuilder, ...]:
    """Those of a host; that of rings once this host's trial has succeeded."""
    if kind == "local":
        return (SharedMemoryRoads(),)
    if kind == "ring":
        probe = RingProbe()
        reason = await probe.run()
        assert not reason, reason
        return (RingRoads("127.0.0.1", probe),)
    return ()


async def carried_by(kind: RoadKind, *ends: LinkEnd, seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until a road of that kind carries the ends."""
    async with asyncio.timeout(seconds):
        while any(end.state.kind is not kind for end in ends):  # noqa: ASYNC110 no event
            await asyncio.sleep(0.002)
