"""Both ends of a link in one process: over real gRPC sockets, or over queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc.aio

from kakeya.v1 import tensor_pb2 as wire
from kakeya.v1 import tensor_pb2_grpc
from kakeya_fleet.node.links.contract import LinkPurpose, TensorLink
from kakeya_fleet.node.links.link_end import LinkEnd
from kakeya_fleet.node.links.link_limits import LinkLimits
from kakeya_fleet.node.links.link_table import LinkTable
from kakeya_fleet.node.links.open_links import LinkUse, OpenLinks
from kakeya_fleet.node.links.promotion import LinkMode
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.roads.ring_probe import RingProbe
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from kakeya_fleet.node.links.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.grpc_settings import client_options, server_options


class HandedOut:
    """A handler that gives the served end to whoever opened it, and stays with it."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._ends: asyncio.Queue[TensorLink] = asyncio.Queue()

    def check(self, request: wire.OpenLinkRequest) -> LinkLimits:
        """Every link may be opened."""
        return self._limits

    async def serve(self, link: TensorLink, request: wire.OpenLinkRequest) -> None:
        """Waits for the link's end."""
        assert isinstance(link, LinkEnd)
        self._ends.put_nowait(link)
        await link.ended.wait()

    async def next(self) -> LinkEnd:
        """The served end of the link that was opened last."""
        link = await self._ends.get()
        assert isinstance(link, LinkEnd)
        return link


class Host:
    """One node's links: those that it opens, and a server for those that others open."""

    def __init__(
        self,
        builders: Sequence[RoadBuilder] = (),
        mode: LinkMode = LinkMode.AUTO,
        limits: LinkLimits | None = None,
    ) -> None:
        self.limits = limits if limits is not None else LinkLimits()
        self.metrics = NodeMetrics()
        self.links = OpenLinks(builders, self.metrics, mode=mode)
        self.handler = HandedOut(self.limits)
        self.table = LinkTable(lambda: asyncio.get_running_loop().time())
        self.servicer = TensorServicer(
            {},
            self.table,
            self.metrics,
            self.links,
            {wire.LINK_PURPOSE_KEYS_VALUES: self.handler},
        )
        self.server = grpc.aio.server(
            interceptors=[ErrorInterceptor(self.metrics)], options=server_options()
        )
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def open(self, channel: grpc.aio.Channel, other: Host) -> tuple[LinkEnd, LinkEnd]:
        """A link to another host: the caller's end, and the other."""
        opened = await self.links.open(
            channel,
            wire.OpenLinkRequest(
                sender_node_id="caller", purpose=wire.LINK_PURPOSE_KEYS_VALUES, archive_id="any"
            ),
            peer_node_id="served",
            timeout=10.0,
            use=LinkUse(limits=self.limits),
        )
        return opened.end, await other.handler.next()

    async def close(self) -> None:
        await self.links.close()
        await self.server.stop(0)


@asynccontextmanager
async def linked_hosts(
    builders: tuple[Sequence[RoadBuilder], Sequence[RoadBuilder]] = ((), ()),
    modes: tuple[LinkMode, LinkMode] = (LinkMode.AUTO, LinkMode.AUTO),
    limits: LinkLimits | None = None,
) -> AsyncIterator[tuple[Host, Host, grpc.aio.Channel]]:
    """Two hosts, and a channel from the first to the second."""
    hosts = tuple(Host(*each, limits) for each in zip(builders, modes, strict=True))
    await hosts[1].server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{hosts[1].port}", options=client_options())
    try:
        yield hosts[0], hosts[1], channel
    finally:
        for host in hosts:
            await host.close()
        await channel.close()


@asynccontextmanager
async def linked_pair(
    kind: str = "grpc",
    *,
    builders: tuple[Sequence[RoadBuilder], Sequence[RoadBuilder]] = ((), ()),
    mode: LinkMode | None = None,
    limits: LinkLimits | None = None,
) -> AsyncIterator[tuple[LinkEnd, LinkEnd]]:
    """Both ends of an open link: the caller's first.

    `kind`: "queues" within the process; "grpc" chunks; "local" and "ring" wait until that
    road, of `builders`, carries the link. `mode` in place of the kind's own.
    """
    if kind == "queues":
        links = OpenLinks()
        try:
            yield links.pair(LinkPurpose.KEYS_VALUES, limits=limits)
        finally:
            await links.close()
        return
    chosen = mode if mode is not None else LinkMode(kind)
    if not any(builders) and kind == "local":
        builders = ((SharedMemoryRoads(),), (SharedMemoryRoads(),))
    elif not any(builders) and kind == "ring":
        builders = (await rings(), await rings())
    async with linked_hosts(builders, (chosen, chosen), limits) as (caller, other, channel):
        ends = await caller.open(channel, other)
        if mode is None and kind in ("local", "ring"):
            await carried_by(kind, *ends)
        yield ends
        for end in ends:
            await end.close()


async def rings() -> tuple[RoadBuilder, ...]:
    """The builder of rings, once this host's trial has succeeded."""
    probe = RingProbe()
    reason = await probe.run()
    assert not reason, reason
    return (RingRoads("127.0.0.1", probe),)


async def carried_by(kind: str, *ends: LinkEnd, seconds: float = 30.0) -> None:
    """Waits until a road of that kind carries the ends."""
    async with asyncio.timeout(seconds):
        while any(end.state.kind.value != kind for end in ends):  # noqa: ASYNC110 no event
            await asyncio.sleep(0.005)
