"""The server of a node's archives, beside the node's own.

It has ports of its own and answers in threads: on the node's event loop an
archive's attention would hold up gossip, drafts and sessions.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from kakeya.v1 import archive_pb2_grpc
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.errors import PortInUse
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_service import ArchiveServicer, LenientParsing
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_server import DataServer
from kakeya_fleet.node.rpc.grpc_settings import STOP_SECONDS, server_options
from kakeya_fleet.node.rpc.listening import bind
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import SpanRing

# For calls that open and close archives; a data connection has a thread of its own.
CALL_THREADS = 4


class ArchiveServer:
    """A running server of archives; `port` is where it answers."""

    def __init__(
        self,
        archives: Archives,
        metrics: NodeMetrics,
        host: str,
        trust: Trust | None = None,
        spans: SpanRing | None = None,
    ) -> None:
        """Binds two free ports of `host` and serves: with `trust`, members alone.

        Raises `PortInUse`.
        """
        self.archives = archives
        self._metrics = metrics
        _count(archives, metrics)
        self._data = DataServer(archives, metrics, host, trust)
        self._executor = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="archive")
        self._server = grpc.server(
            self._executor,
            options=server_options(),
            interceptors=[LenientParsing()],
            maximum_concurrent_rpcs=archives.settings.at_once,
        )
        servicer = ArchiveServicer(archives, metrics, self._data.port, trust, spans)
        archive_pb2_grpc.add_ArchiveServiceServicer_to_server(servicer, self._server)
        try:
            self.port = bind(self._server, join_address(host, 0), trust)
        except RuntimeError as error:
            self._executor.shutdown()
            self._data.close()
            raise PortInUse(
                f"no port of {host} can be bound for the archive",
                "name another address with --bind",
                address=host,
            ) from error
        self._server.start()

    def close(self) -> None:
        """Ends every call and connection, then the threads. Blocks until they have ended."""
        self.archives.cut_off()
        self._data.close()
        # With no grace gRPC tells its clients of an error, which they write to stderr.
        self._server.stop(STOP_SECONDS).wait()
        self._executor.shutdown()
        _count_nothing(self._metrics)


def _count(archives: Archives, metrics: NodeMetrics) -> None:
    """Has the metrics ask what there is, when they are read."""
    metrics.archive_budget_bytes.set(archives.budget_bytes)
    metrics.archives_open.set_function(lambda: len(archives))
    metrics.archive_bytes.set_function(lambda: archives.used_bytes)
    metrics.archive_positions.set_function(lambda: archives.positions)
    metrics.archive_saved_bytes.set_function(lambda: archives.saved_bytes)


def _count_nothing(metrics: NodeMetrics) -> None:
    """Has the metrics say that nothing is kept; they would keep the archives' memory."""
    metrics.archive_budget_bytes.set(0)
    for gauge in (
        metrics.archives_open,
        metrics.archive_bytes,
        metrics.archive_positions,
        metrics.archive_saved_bytes,
    ):
        gauge.set_function(float)
