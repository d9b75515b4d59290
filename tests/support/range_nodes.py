"""Archives of one process with a small chunk, and sessions that share them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import grpc

from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.node.admission.limits import ArchiveLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_connection import OpenConnections
from kakeya_fleet.node.roles.archive.next_range import NextRange, RangePart
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from kakeya_fleet.node.roles.archive.shared_store import SharedEvictedStore, Sharing
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
CHUNK = 1024
END = 3 * CHUNK + 300


class Stores:
    """Stores on torch, as a node's archives make them, with a small chunk."""

    arithmetic = "test"

    def __init__(self, budget_bytes: int) -> None:
        self.pool: SlabPool[Any] = kv_pool(budget_bytes)
        self.budget_bytes = budget_bytes

    @property
    def used_bytes(self) -> int:
        return self.pool.used_bytes

    def check(self, opening: Opening) -> None:
        return

    def make(self, opening: Opening) -> TorchEvictedStore:
        return TorchEvictedStore(
            opening.shape,
            opening.restorer,
            self.pool,
            origin=opening.first_position,
            chunk_keys=CHUNK,
        )


@dataclass
class Node:
    """A node with archives."""

    name: str
    stores: Stores
    archives: Archives
    server: ArchiveServer
    stub: ArchiveServiceStub

    @property
    def where(self) -> ArchiveCandidate:
        return ArchiveCandidate(self.name, self.name, "", 0.0, "")


@dataclass
class Nodes:
    """Archives of a test, with room for so many chunks each, and sessions over them."""

    shape: EvictedShape
    naive: ModuleType
    faults: list[RestorerFault] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    channels: list[grpc.Channel] = field(default_factory=list)
    wanted: list[NextRange] = field(default_factory=list)
    connections: OpenConnections = field(default_factory=OpenConnections)

    def start(self, name: str, chunks: float, settings: ArchiveLimits | None = None) -> Node:
        stores = Stores(int(chunks * CHUNK * self.shape.bytes_per_position))
        numbers = map(str, itertools.count())
        archives = Archives(
            stores,
            allowances_of(archives=settings or ArchiveLimits()),
            clock=time.monotonic,
            ids=lambda: f"{name}{next(numbers)}",
        )
        server = ArchiveServer(archives, NodeMetrics(), "127.0.0.1")
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        self.channels.append(channel)
        node = Node(name, stores, archives, server, ArchiveServiceStub(channel))
        self.nodes.append(node)
        return node

    def close(self) -> None:
        self.connections.end()
        for channel in self.channels:
            channel.close()
        for node in self.nodes:
            node.server.close()
            assert not len(node.archives)
            assert not node.stores.used_bytes

    def part(self, node: Node, first: int = 0, count: int = 1) -> RangePart:
        opening = Opening(ARCHIVE, self.shape, "v", count, first_position=first)
        opened = node.stub.OpenArchive(opening_to_wire(opening))
        assert opened.takes_ranges
        way = ArchiveWay(
            host="127.0.0.1",
            port=opened.data_port,
            deadline_seconds=2.0,
            connections=self.connections,
            on_fault=self.faults.append,
            on_round_trip=lambda _seconds: None,
        )
        store = RemoteEvictedStore(way, opened.archive_id, self.shape, ARCHIVE, None, first)
        return RangePart(store, node.where)

    def open_next(self, wanted: NextRange) -> None:
        """As the event loop's thread does: the first of the nodes that has the room."""
        self.wanted.append(wanted)
        for node in self.nodes[1:]:
            with suppress(grpc.RpcError, OutOfKvMemory):
                part = self.part(node, wanted.first, wanted.end - wanted.first)
                part.store.reserve(wanted.end)
                wanted.offer(part)
                return
        wanted.refuse("every archive is full")

    def session(self, ask: Callable[[NextRange], None] | None = None) -> SharedEvictedStore:
        sharing = Sharing(self.shape, ARCHIVE, None, ask or self.open_next, 1.0, CHUNK)
        return SharedEvictedStore(sharing, (self.part(self.nodes[0]),))

    def fill(self, store: EvictedStore, end: int, cut: int) -> None:
        """The same numbers whatever the store, as far as `end`, so many at a time."""
        sink = self.shape.sink
        whole = self.naive.random_evicted(self.shape, END - sink, seed=1)
        first = max(store.length, sink)
        while first < end:
            until = min(end, first + cut)
            store.deposit(first, self.naive.part(whole, first - sink, until - sink))
            first = until

    def alone(self) -> TorchEvictedStore:
        """One store of all positions."""
        store = TorchEvictedStore(self.shape, ARCHIVE, kv_pool(), chunk_keys=CHUNK)
        self.fill(store, END, END)
        return store

    def queries(self, layer: int, first: int, count: int, seed: int = 0) -> EvictedQueries:
        """Random ones."""
        made: EvictedQueries = self.naive.random_queries(self.shape, layer, first, count, seed=seed)
        return made

    @staticmethod
    def asked(store: EvictedStore, queries: EvictedQueries) -> PartialAttention:
        """What a store finds."""
        store.begin(queries)
        return store.finish()

    @classmethod
    def bits(cls, store: EvictedStore, queries: EvictedQueries) -> bytes:
        """All bits of it."""
        return bits_of(cls.asked(store, queries))

    @staticmethod
    def finished(store: EvictedStore) -> bytes:
        """All bits of what was begun first."""
        return bits_of(store.finish())

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        """Waits for what a server does in a thread of its own."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.005)


def bits_of(found: PartialAttention) -> bytes:
    """Those of all three parts."""
    return found.output.tobytes() + found.total.tobytes() + found.maximum.tobytes()
