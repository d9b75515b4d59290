"""The archives of a node: admission, leases, what strangers and liars get."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_connection import OpenConnections
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault, error_info
from kakeya_fleet.node.rpc.refusals import ArchiveFull, ArchiveNotFound, Draining
from tests.support import evicted_stores
from tests.support.allowances import allowances_of

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.fixture
def archives(shape: EvictedShape, clock: Clock) -> Archives:
    """Room for 1,024 positions."""
    numbers = map(str, itertools.count())
    stores = evicted_stores.NaiveStores(1024 * shape.bytes_per_position)
    return Archives(stores, allowances_of(), clock=clock, ids=lambda: next(numbers))


@pytest.fixture
def served(archives: Archives) -> Iterator[tuple[ArchiveServiceStub, NodeMetrics]]:
    metrics = NodeMetrics()
    server = ArchiveServer(archives, metrics, "127.0.0.1")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield ArchiveServiceStub(channel), metrics
    server.close()


@pytest.fixture
def faults() -> list[RestorerFault]:
    return []


def way_of(opened: wire.OpenArchiveResponse, faults: list[RestorerFault]) -> ArchiveWay:
    return ArchiveWay(
        host="127.0.0.1",
        port=opened.data_port,
        deadline_seconds=2.0,
        connections=OpenConnections(),
        on_fault=faults.append,
        on_round_trip=lambda _seconds: None,
    )


def reason_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    info = error_info(caught.value)
    assert info is not None
    return caught.value.code(), info.reason


def test_admission_is_by_bytes(archives: Archives, shape: EvictedShape) -> None:
    archive = archives.attach(archives.open(Opening(ARCHIVE, shape, "v", 600)).archive_id)
    archives.deposit(archive, shape.sink, _deposit_of(shape, 800))
    assert archives.positions == 800
    # 256 more must fit, or what is asked for.
    with pytest.raises(ArchiveFull) as full:
        archives.open(Opening(ARCHIVE, shape, "v"))
    assert full.value.metadata["retry_after_seconds"]
    with pytest.raises(ArchiveFull, match="never fits") as never:
        archives.open(Opening(ARCHIVE, shape, "v", 1025))
    assert "retry_after_seconds" not in never.value.metadata
    with pytest.raises(ArchiveFull):
        archives.deposit(archive, shape.sink + 800, _deposit_of(shape, 300))
    assert archives.positions == 800
    archives.release(archive)
    assert archives.used_bytes == len(archives) == 0
    archives.open(Opening(ARCHIVE, shape, "v", 1024))


def test_leases_end_what_nobody_uses(archives: Archives, shape: EvictedShape, clock: Clock) -> None:
    ended: list[str] = []
    opening = Opening(ARCHIVE, shape, "v", lease_seconds=100.0)
    never_attached = archives.open(opening)
    used, unused = (archives.attach(archives.open(opening).archive_id) for _ in range(2))
    for name, archive in (("used", used), ("unused", unused)):
        archive.on_expiry.append(lambda name=name: ended.append(name))
    attach_seconds = archives.settings.attach_seconds
    clock.now = attach_seconds - 1
    assert archives.sweep(clock.now) == 0
    clock.now = attach_seconds
    assert archives.sweep(clock.now) == 1
    with pytest.raises(ArchiveNotFound):
        archives.attach(never_attached.archive_id)
    clock.now = 99.0
    archives.used(used)
    clock.now = 150.0
    assert archives.sweep(clock.now) == 1
    assert ended == ["unused"]
    with pytest.raises(ArchiveNotFound):
        archives.used(unused)
    archives.used(used)


def test_a_draining_archive_goes_on_for_those_it_has(
    archives: Archives, shape: EvictedShape
) -> None:
    archive = archives.attach(archives.open(Opening(ARCHIVE, shape, "v")).archive_id)
    archives.drain()
    with pytest.raises(Draining):
        archives.open(Opening(ARCHIVE, shape, "v"))
    archives.used(archive)
    ended: list[bool] = []
    archive.on_expiry.append(lambda: ended.append(True))
    archives.cut_off()
    assert ended
    with pytest.raises(Draining):
        archives.used(archive)


def test_a_strangers_id_is_refused_and_disturbs_nobody(
    served: tuple[ArchiveServiceStub, NodeMetrics], shape: EvictedShape, faults: list[RestorerFault]
) -> None:
    stub, metrics = served
    opened = stub.OpenArchive(opening_to_wire(Opening(ARCHIVE, shape, "v")))
    way = way_of(opened, faults)
    own = RemoteEvictedStore(way, opened.archive_id, shape, ARCHIVE)
    own.deposit(shape.sink, evicted_stores.random_evicted(shape, 50, seed=0))
    not_found = (grpc.StatusCode.NOT_FOUND, "ARCHIVE_NOT_FOUND")
    # Unknown, and in use by another.
    for archive_id in ("", "99", opened.archive_id):
        with pytest.raises(RestorerLost):
            RemoteEvictedStore(way, archive_id, shape, ARCHIVE)
        close = wire.CloseArchiveRequest(archive_id=archive_id)
        assert reason_of(lambda close=close: stub.CloseArchive(close)) == not_found
    assert faults == [RestorerFault.GONE] * 3
    own.begin(evicted_stores.random_queries(shape, 0, 60, 4, seed=1))
    assert own.finish().total.all()
    own.release()
    assert (
        metrics.registry.get_sample_value(
            "kakeya_rpc_errors_total", {"reason": "ARCHIVE_NOT_FOUND"}
        )
        == 6
    )


def test_a_failed_deposit_is_told_by_the_next_answer(
    served: tuple[ArchiveServiceStub, NodeMetrics], shape: EvictedShape, faults: list[RestorerFault]
) -> None:
    stub, _ = served
    opened = stub.OpenArchive(opening_to_wire(Opening(ARCHIVE, shape, "v")))
    store = RemoteEvictedStore(way_of(opened, faults), opened.archive_id, shape, ARCHIVE)
    store.deposit(shape.sink, _deposit_of(shape, 1100))
    store.begin(evicted_stores.random_queries(shape, 0, 60, 4, seed=1))
    with pytest.raises(RestorerLost) as lost:
        store.finish()
    assert lost.value.metadata == {"fault": "full"}
    assert faults == [RestorerFault.FULL]
    # For ever.
    with pytest.raises(RestorerLost):
        store.begin(evicted_stores.random_queries(shape, 0, 60, 4, seed=1))
    with pytest.raises(RestorerLost):
        store.deposit(1103, _deposit_of(shape, 1))
    store.abandon()
    store.release()
    assert faults == [RestorerFault.FULL]


def _deposit_of(shape: EvictedShape, count: int) -> Any:
    return EvictedKeysValues(tuple(np.zeros(sizes, dtype) for dtype, sizes in shape.arrays(count)))
