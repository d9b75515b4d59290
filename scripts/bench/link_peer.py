"""The other end of every way that tensors travel: a process that takes them and says so.

    python -m scripts.bench.link_peer

Prints one line of JSON with its ports. A line of JSON on its standard input asks for a
road, `{"kind", "nonce", "terms"}`, and is answered with this end's terms; each tensor on
it is announced, and acknowledged, on a connection to `announcements` that begins with
the road's number. Links are served at `grpc` as a node serves them, for vectors
that nobody keeps. Ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kakeya.v1 import tensor_pb2_grpc
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkPurpose, RoadKind, TensorLink
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.grpc_settings import STOP_SECONDS
from kakeya_fleet.node.rpc.listening import listen, make_server
from scripts.bench.raw_tcp import HEADER

HOST = "127.0.0.1"
TRANSFER_SECONDS = 60.0


def builders() -> Mapping[RoadKind, RoadBuilder]:
    """Those of either end."""
    return {RoadKind.LOCAL: SharedMemoryRoads(), RoadKind.RING: RingRoads(HOST)}


class Sink:
    """Serves links: takes every tensor, keeps none."""

    def open(
        self,
        request: LinkRequest,  # noqa: ARG002 - of no influence here
    ) -> LinkService:
        """Any may be opened."""
        limits = LinkLimits()
        return LinkService(limits, limits.budget_bytes, self._serve)

    async def _serve(
        self,
        link: TensorLink,
        _want_encoder: bool,  # noqa: FBT001
    ) -> None:
        """Until the link ends."""
        with suppress(LinkClosed):
            while True:
                await link.receive()


class Roads:
    """The roads that were asked for, by number."""

    def __init__(self) -> None:
        self._builders = builders()
        self._roads: list[asyncio.Task[Road]] = []

    async def answer(self, asked: Mapping[str, str], terms: Mapping[str, str]) -> dict[str, object]:
        """The terms of this end, and the road's number; it is built behind the answer's back."""
        builder = self._builders[RoadKind(asked["kind"])]
        plan = await builder.answer(bytes.fromhex(asked["nonce"]), terms)
        self._roads.append(asyncio.create_task(plan.build(terms)))
        return {"terms": dict(plan.terms), "number": len(self._roads) - 1}

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes the tensors that one connection announces, until it ends."""
        try:
            with suppress(asyncio.IncompleteReadError, OSError, RoadFailed):
                (number,) = HEADER.unpack(await reader.readexactly(HEADER.size))
                road = await self._roads[number]
                while True:
                    announced = await reader.readexactly(HEADER.size)
                    (size,) = HEADER.unpack(announced)
                    await road.receive(size, seconds=TRANSFER_SECONDS)
                    writer.write(announced)
        finally:
            writer.close()

    async def close(self) -> None:
        """Ends all."""
        for road in await asyncio.gather(*self._roads, return_exceptions=True):
            if not isinstance(road, BaseException):
                await road.close()


async def serve() -> None:
    """Serves until the standard input ends."""
    metrics = NodeMetrics()
    links = OpenLinks(tuple(builders().values()), metrics)
    server = make_server(ErrorInterceptor(metrics))
    table = LinkTable(time.monotonic, Allowances(Limits(), metrics))
    tensors = TensorServicer(table, metrics, links, {LinkPurpose.FEATURES: Sink()})
    tensor_pb2_grpc.add_TensorServiceServicer_to_server(tensors, server)
    port = listen(server, HOST, 0, 0)
    await server.start()
    roads = Roads()
    announced = await asyncio.start_server(roads.take, HOST, 0)
    ports = {"grpc": port, "announcements": announced.sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            told: Mapping[str, object] = await roads.answer(asked, asked["terms"])
        except RoadFailed as error:
            told = {"failed": str(error)}
        print(json.dumps(told), flush=True)
    announced.close()
    await roads.close()
    await links.close()
    await server.stop(STOP_SECONDS)


def main(_words: Sequence[str] = ()) -> None:
    """Serves."""
    asyncio.run(serve())


if __name__ == "__main__":
    main()
