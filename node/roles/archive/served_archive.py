"""An archive as a node serves it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kakeya_fleet.engine.backends import archive_stores
from kakeya_fleet.fleet.cards.card import ArchiveOffer
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.node_stores import NodeStores
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import SpanRing

ARCHIVE_ID_BYTES = 16


class ServedArchive:
    """A running archive. Belongs to one event loop; it serves in threads of its own."""

    def __init__(self, server: ArchiveServer, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock

    @classmethod
    async def start(
        cls,
        budget_bytes: int,
        drafters: Mapping[str, Path],
        metrics: NodeMetrics,
        clock: Callable[[], float],
        *,
        host: str,
        allowances: Allowances,
        trust: Trust | None = None,
        spans: SpanRing | None = None,
    ) -> ServedArchive:
        """Serves so much memory at a free port of `host`: with `trust`, to members alone.

        `drafters` are folders whose learned maps sessions may name, besides the
        shipped ones. Raises `ModelUnusable`, `PortInUse`.
        """
        stores = await asyncio.to_thread(archive_stores, budget_bytes)
        archives = Archives(
            NodeStores(stores, drafters),
            allowances,
            clock=clock,
            ids=partial(secrets.token_hex, ARCHIVE_ID_BYTES),
        )
        return cls(ArchiveServer(archives, metrics, host, trust, spans), clock)

    @property
    def offer(self) -> ArchiveOffer:
        """What the card says of it."""
        archives = self._server.archives
        return ArchiveOffer(
            capacity_bytes=archives.budget_bytes,
            free_bytes=max(0, archives.budget_bytes - archives.used_bytes),
            port=self._server.port,
            arithmetic=archives.arithmetic,
        )

    @property
    def open_count(self) -> int:
        """Archives that are open."""
        return len(self._server.archives)

    @property
    def used_bytes(self) -> int:
        """Bytes that they take."""
        return self._server.archives.used_bytes

    @property
    def budget_bytes(self) -> int:
        """Bytes that they may take together."""
        return self._server.archives.budget_bytes

    def sweep(self) -> None:
        """Ends archives that nobody used for as long as their leases."""
        self._server.archives.sweep(self._clock())

    def drain(self) -> None:
        """Opens none from now on; those in use go on until `close`."""
        self._server.archives.drain()

    async def close(self) -> None:
        """Ends every archive and the server's threads; ."""
        await asyncio.to_thread(self._server.close)
