"""Opens the links on which this node's verifiers read back what archives keep."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError as Cancelled
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass, field

import grpc.aio

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.restoration.keys_values_source import KeysValuesSource, OpenSource
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.node.links.ends.link_end import LinkUse
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkPurpose
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.kv_fetch_link import FetchWatch, KvLinkSource, LinkNews
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault


@dataclass(slots=True)
class KvFetchLinks:
    """The links of one node. Belongs to the event loop's thread, and so does `opener`."""

    links: OpenLinks
    fleet: FleetView
    metrics: NodeMetrics
    deadline_seconds: float
    _carried: set[asyncio.Task[None]] = field(default_factory=set)

    def opener(self, node_id: str, shape: EvictedShape) -> OpenSource:
        """Opens sources for archives of a node; called by threads, never by the loop's."""
        loop = asyncio.get_running_loop()

        def open_source(kept: EvictedStore) -> KeysValuesSource:
            if not isinstance(kept, RemoteEvictedStore):
                raise TypeError("keys and values are read back from another node's archive alone")
            opening = asyncio.run_coroutine_threadsafe(
                self._open(node_id, kept.archive_id, shape), loop
            )
            try:
                return opening.result(self.deadline_seconds)
            except NotInTime as error:
                opening.cancel()
                opening.add_done_callback(_let_go)
                self._count(RestorerFault.DEADLINE)
                raise RestorerLost(
                    f"no link to the session's archive within {self.deadline_seconds:g} s"
                ) from error
            except Cancelled as error:
                raise RestorerLost("the way to the session's archive was closed") from error

        return open_source

    async def close(self) -> None:
        """Ends all of them."""
        for task in self._carried:
            task.cancel()
        if self._carried:
            await asyncio.wait(self._carried)

    async def _open(self, node_id: str, archive_id: str, shape: EvictedShape) -> KvLinkSource:
        request = LinkRequest(
            LinkPurpose.KEYS_VALUES, sender_node_id=self.fleet.self_id, archive_id=archive_id
        )
        news = LinkNews()
        try:
            opened = await self.links.open(
                self.fleet.channel(node_id),
                request,
                peer_node_id=node_id,
                timeout=self.deadline_seconds,
                use=LinkUse(on_change=news.add),
            )
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, LinkClosed, NodeNotFound) as error:
            words = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
            self._count(RestorerFault.UNREACHABLE)
            raise RestorerLost(f"no link to the session's archive opens: {words}") from error
        source = KvLinkSource(
            opened.end,
            shape,
            FetchWatch(
                on_fault=self._count,
                on_wait=self.metrics.restorer_round_trip_seconds.observe,
                on_bytes=self.metrics.restorer_read_bytes.inc,
            ),
            deadline_seconds=self.deadline_seconds,
            news=news,
        )
        self._carried.add(source.task)
        source.task.add_done_callback(self._carried.discard)
        return source

    def _count(self, fault: RestorerFault) -> None:
        self.metrics.restorer_faults.labels(kind=fault.value).inc()


def _let_go(opening: Future[KvLinkSource]) -> None:
    """Closes a source that came when nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
