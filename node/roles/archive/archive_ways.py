"""Ways from this node's verifiers to archives: one channel an address, opened in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import grpc
import structlog

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.answer_audit import Auditing, AuditOutcome
from kakeya_fleet.node.roles.archive.answer_waits import AnswerWaits
from kakeya_fleet.node.roles.archive.archive_channels import ArchiveChannels
from kakeya_fleet.node.roles.archive.audit_stores import AuditStores
from kakeya_fleet.node.roles.archive.data_connection import MeantNode, OpenConnections
from kakeya_fleet.node.roles.archive.data_frames import VERSION
from kakeya_fleet.node.roles.archive.distrusted_archives import DistrustedArchives
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault, error_info
from kakeya_fleet.node.roles.archive.store_audits import AuditWay
from kakeya_fleet.node.roles.settings import RestorerSettings
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.rpc.trace_context import outgoing
from kakeya_fleet.node.trust.trust import Trust

_log = structlog.get_logger(__name__)


class ArchiveRefused(Exception):
    """An archive does not take the session; `reason` is the wire's, empty for the network's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class OpenedArchive:
    """An attached archive, and what computes there."""

    store: RemoteEvictedStore
    arithmetic: str


class ArchiveWays:
    """Opens archives on other nodes. Belongs to the event loop's thread."""

    def __init__(
        self,
        metrics: NodeMetrics,
        settings: RestorerSettings,
        clock: Callable[[], float],
        channels: Channels | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`clock` gives monotonic seconds. `channels` are of the same trust, plain by default."""
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._audit_stores = AuditStores(settings.audit_bytes)
        self._distrusted = DistrustedArchives(settings.distrust)
        self._connections = OpenConnections()
        self._channels = ArchiveChannels(channels or Channels(trust), trust)
        self._trust = trust
        if trust is not None:
            trust.on_change.append(self._connections.end_strangers)
        self.waits = AnswerWaits()
        """What sessions wait for each archive, by its address."""

    async def open(
        self,
        address: str,
        opening: Opening,
        encoder: FeatureEncoder | None,
        node_id: str = "",
    ) -> OpenedArchive:
        """An empty archive at host:port, of that node. Raises `ArchiveRefused`.

        Who answers there proves to be that node in a fleet with an authority. The memory for
        all of its expected positions is kept when its range begins behind others.
        """
        self._check_members(node_id)
        host, _ = split_address("address", address)
        way = partial(
            ArchiveWay,
            host,
            deadline_seconds=self._settings.deadline,
            connections=self._connections,
            on_fault=partial(self._lost, address),
            on_round_trip=partial(self._waited, address),
            meant=MeantNode(node_id, self._trust) if self._trust is not None else None,
        )
        # A map that is loaded there takes its time; a node that is frozen is not waited for.
        has_map = bool(opening.restorer.width)
        seconds = self._settings.map_loading if has_map else self._settings.deadline
        stub = ArchiveServiceStub(self._channels.to(address, node_id))
        work = partial(_open, stub, way, self._audits, opening, encoder, seconds)
        opening_it = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(opening_it)
        except asyncio.CancelledError:
            opening_it.add_done_callback(_let_go)
            raise

    def distrusted_by_node(self, fleet: FleetView) -> dict[str, str]:
        """Nodes whose archives are not asked now, each with what it did."""
        return self._distrusted.by_node(fleet, self._clock())

    async def close(self) -> None:
        """Ends the channels, and the archives that are still in use."""
        if self._trust is not None:
            self._trust.on_change.remove(self._connections.end_strangers)
        self._connections.end()
        await asyncio.to_thread(self._channels.close)

    def _check_members(self, node_id: str) -> None:
        """Says what gRPC would only call unavailable. Raises `ArchiveRefused`."""
        if self._trust is None:
            return
        if self._trust.is_out(node_id):
            raise ArchiveRefused(BadCertificate.reason, f"node {node_id[:12]} was put out")
        try:
            self._trust.member_of(self._trust.member.certificate)
        except BadCertificate as error:
            raise ArchiveRefused(error.reason, f"of this node itself {error}") from error

    def _waited(self, address: str, seconds: float) -> None:
        """In the verifier's thread."""
        self._metrics.restorer_round_trip_seconds.observe(seconds)
        self.waits.observe(address, seconds)

    def _lost(self, address: str, fault: RestorerFault) -> None:
        """In the verifier's thread, or in that of an opening."""
        self._metrics.restorer_faults.labels(kind=fault.value).inc()
        self._distrusted.note(address, fault, self._clock())
        if fault.is_of_numbers:
            _log.error("archive_gave_wrong_numbers", archive=address, fault=fault.value)

    def _audits(self, arithmetic: str) -> AuditWay | None:
        """In the thread of an opening: the first loads what computes."""
        stores = self._audit_stores.get()
        if stores is None:
            return None
        auditing = Auditing(stores, self._settings.audit_answers)
        return AuditWay(auditing, arithmetic, self._audited)

    def _audited(self, outcome: AuditOutcome) -> None:
        """In the verifier's thread."""
        self._metrics.restorer_audits.labels(outcome=outcome.value).inc()


def _let_go(opening: asyncio.Future[OpenedArchive]) -> None:
    """Releases an archive whose caller left before it was open."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().store.release()


def _open(
    stub: ArchiveServiceStub,
    way: Callable[[int], ArchiveWay],
    audits: Callable[[str], AuditWay | None],
    opening: Opening,
    encoder: FeatureEncoder | None,
    seconds: float,
) -> OpenedArchive:
    """In a thread of its own; it may take so many seconds."""
    try:
        opened: wire.OpenArchiveResponse = stub.OpenArchive(
            opening_to_wire(opening), timeout=seconds, metadata=outgoing()
        )
    except grpc.RpcError as error:
        info = error_info(error)
        words = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        raise ArchiveRefused(info.reason if info is not None else "", words) from error
    if opening.first_position and not opened.takes_ranges:
        raise ArchiveRefused("", "it takes all positions of a session, or none")
    if opened.data_version != VERSION:
        raise ArchiveRefused(
            "", f"its data connections are of version {opened.data_version or 1}, not {VERSION}"
        )
    if opened.codec != opening.restorer.codec:
        raise ArchiveRefused("", f"it does not know the codec {opening.restorer.codec}")
    try:
        store = RemoteEvictedStore(
            replace(way(opened.data_port), audits=audits(opened.arithmetic)),
            opened.archive_id,
            opening.shape,
            opening.restorer,
            encoder,
            opening.first_position,
        )
        if opening.first_position:
            _reserve(store, opening.first_position + opening.expected_positions)
    except RestorerLost as error:
        raise ArchiveRefused("", str(error)) from error
    return OpenedArchive(store, opened.arithmetic)


def _reserve(store: RemoteEvictedStore, end: int) -> None:
    """Raises `ArchiveRefused` with the store released, `RestorerLost`."""
    try:
        store.reserve(end)
    except OutOfKvMemory as error:
        store.release()
        raise ArchiveRefused("ARCHIVE_FULL", str(error)) from error
