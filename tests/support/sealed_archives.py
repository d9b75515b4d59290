"""Archives of fleets with and without an authority, in this process, and who comes to them."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.node.admission.limits import ArchiveLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive import archives as archives_room
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.data_frames import Frame, FrameReader, Kind, parts_of
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.settings import RestorerSettings
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from tests.support import evicted_stores
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

HOST = "127.0.0.1"
WAIT_SECONDS = 10.0


@dataclass
class Served:
    """A running archive of a member."""

    trust: Trust | None
    archives: archives_room.Archives
    server: ArchiveServer
    metrics: NodeMetrics
    shape: EvictedShape

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    @property
    def opening(self) -> Opening:
        return Opening(RestorerSpec(RestorerKind.ARCHIVE), self.shape, "v")

    def refused(self, reason: str) -> float:
        counted = self.metrics.registry.get_sample_value(
            "kakeya_rpc_errors_total", {"reason": reason}
        )
        return counted or 0.0

    def opened_by(self, trust: Trust | None) -> tuple[int, str]:
        """Data port and id of an archive of that member."""
        node_id = self.trust.node_id if self.trust is not None else ""
        with Channels(trust).open_blocking(self.address, node_id) as channel:
            request = opening_to_wire(self.opening)
            opened = ArchiveServiceStub(channel).OpenArchive(request, timeout=WAIT_SECONDS)
            return opened.data_port, opened.archive_id


class Archives:
    """Archives of a test."""

    def __init__(self) -> None:
        self._running: list[Served] = []

    def start(self, trust: Trust | None, **limits: Any) -> Served:
        """An archive of a member, or of a node of a fleet without an authority."""
        shape, numbers, metrics = evicted_stores.small_shape(), itertools.count(), NodeMetrics()
        archives = archives_room.Archives(
            evicted_stores.NaiveStores(4000 * shape.bytes_per_position),
            allowances_of(archives=ArchiveLimits(**limits)),
            clock=time.monotonic,
            ids=lambda: f"archive-of-nobody-{next(numbers)}",
        )
        server = ArchiveServer(archives, metrics, HOST, trust)
        self._running.append(Served(trust, archives, server, metrics, shape))
        return self._running[-1]

    def close(self) -> None:
        """Ends them."""
        for served in self._running:
            served.server.close()


def ways_of(trust: Trust | None, deadline: float = 5.0) -> ArchiveWays:
    settings = RestorerSettings(deadline=deadline)
    return ArchiveWays(NodeMetrics(), settings, time.monotonic, Channels(trust), trust)


def answer_of(store: Any, shape: EvictedShape) -> bytes:
    """All bits of an answer, to queries behind deposits of more than one record."""
    store.deposit(shape.sink, evicted_stores.random_evicted(shape, 600, seed=0))
    store.begin(evicted_stores.random_queries(shape, 2, 605, 5, seed=1))
    found = store.finish()
    return bytes(found.output.tobytes() + found.total.tobytes() + found.maximum.tobytes())


def attach(stream: Any, archive_id: str) -> Frame:
    """What the archive answers to one who would use it."""
    stream.sendmsg(parts_of(Frame(Kind.ATTACH, serial=1), archive_id.encode()))
    return FrameReader(stream).receive(within=WAIT_SECONDS)


def until(holds: Callable[[], bool]) -> None:
    """Waits for what a server does in a thread of its own."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Relay:
    """Passes one connection's bytes on, and keeps them.

    What comes back goes through `back`, which may be set at any time.
    """

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen = bytearray()
        self.back: Callable[[bytes], Iterable[bytes]] = lambda data: (data,)
        self._there = socket.create_connection((HOST, port))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        here, _ = self._listener.accept()
        back = threading.Thread(target=self._pass, args=(self._there, here, self._changed))
        back.start()
        self._pass(here, self._there, lambda data: (data,))
        back.join()
        here.close()

    def _changed(self, data: bytes) -> Iterable[bytes]:
        return self.back(data)

    def _pass(
        self,
        source: socket.socket,
        target: socket.socket,
        change: Callable[[bytes], Iterable[bytes]],
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                self.seen += data
                for part in change(data):
                    target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # The other direction has ended both.
            return

    def close(self) -> None:
        self._thread.join()
        self._listener.close()
        self._there.close()
