"""The archives of a node: admission, leases, what strangers and liars get."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
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
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.limits import ArchiveLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.data_connection import OpenConnections
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.position_tags import Tags
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


def filled(archives: Archives, shape: EvictedShape, caller: str, positions: int) -> Archive:
    """An attached archive of `caller` that keeps so many positions."""
    opened = archives.open(Opening(ARCHIVE, shape, "v"), Caller(caller))
    archive = archives.attach(opened.archive_id)
    archives.deposit(archive, shape.sink, _deposit_of(shape, positions), _tags_of(shape, positions))
    return archive


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
    archives.deposit(archive, shape.sink, _deposit_of(shape, 800), _tags_of(shape, 800))
    assert archives.positions == 800
    # 256 more must fit, or what is asked for.
    with pytest.raises(ArchiveFull) as full:
        archives.open(Opening(ARCHIVE, shape, "v"))
    assert full.value.metadata["retry_after_seconds"]
    with pytest.raises(ArchiveFull, match="never fits") as never:
        archives.open(Opening(ARCHIVE, shape, "v", 1025))
    assert "retry_after_seconds" not in never.value.metadata
    with pytest.raises(ArchiveFull):
        archives.deposit(archive, shape.sink + 800, _deposit_of(shape, 300), _tags_of(shape, 300))
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
        archive.on_expiry.append(partial(ended.append, name))
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


def test_an_archive_that_is_not_used_makes_way_for_one_that_is_wanted(
    shape: EvictedShape, clock: Clock
) -> None:
    numbers = map(str, itertools.count())
    limits = ArchiveLimits(at_once=4)
    archives = Archives(
        evicted_stores.NaiveStores(8192 * shape.bytes_per_position),
        allowances_of(archives=limits),
        clock=clock,
        ids=lambda: next(numbers),
    )
    opening = Opening(ARCHIVE, shape, "v", lease_seconds=86_400.0)
    greedy = [archives.open(opening, Caller("10.0.0.9")) for _ in range(3)]
    honest = archives.open(opening, Caller("10.0.0.1"))
    for archive in (*greedy, honest):
        archives.attach(archive.archive_id)
    clock.now = limits.reclaimed_after_seconds - 1
    with pytest.raises(ArchiveFull) as full:
        archives.open(opening, Caller("10.0.0.2"))
    assert full.value.metadata["retry_after_seconds"]
    clock.now += 1
    archives.used(greedy[0])
    archives.open(opening, Caller("10.0.0.2"))
    assert [each.expired for each in (*greedy, honest)].count(True) == 1
    assert greedy[1].expired or greedy[2].expired
    assert len(archives) == 4


def test_memory_that_is_not_used_makes_way_for_what_is_wanted(
    archives: Archives, shape: EvictedShape, clock: Clock
) -> None:
    """Of whoever keeps the most: the one with less keeps it, though it is unused for longer."""
    small = filled(archives, shape, "10.0.0.1", 200)
    clock.now = 1.0
    greedy = [filled(archives, shape, "10.0.0.9", 300) for _ in range(2)]
    wanted = Opening(ARCHIVE, shape, "v", 300)
    clock.now = archives.settings.reclaimed_after_seconds
    with pytest.raises(ArchiveFull):
        archives.open(wanted, Caller("10.0.0.2"))
    assert not small.expired
    clock.now += 1.0
    with pytest.raises(ArchiveFull) as full:
        archives.open(wanted, Caller("10.0.0.2"))
    assert full.value.metadata["retry_after_seconds"]
    assert [each.expired for each in (small, *greedy)] == [False, True, False]
    with pytest.raises(ArchiveFull):
        archives.open(wanted, Caller("10.0.0.2"))
    assert not greedy[1].expired, "what is on its way is enough"
    # As the stream that has it does.
    archives.release(greedy[0])
    archives.attach(archives.open(wanted, Caller("10.0.0.2")).archive_id)


def test_unused_archives_do_not_end_in_vain(
    archives: Archives, shape: EvictedShape, clock: Clock
) -> None:
    unused = filled(archives, shape, "10.0.0.1", 300)
    clock.now = archives.settings.reclaimed_after_seconds
    used = filled(archives, shape, "10.0.0.1", 500)
    with pytest.raises(ArchiveFull):
        archives.open(Opening(ARCHIVE, shape, "v", 600))
    with pytest.raises(ArchiveFull, match="never fits"):
        archives.open(Opening(ARCHIVE, shape, "v", 1025))
    assert not unused.expired
    assert isinstance(used.store, evicted_stores.NaiveEvictedStore)
    used.store.limit_bytes = used.store.stored_bytes
    with pytest.raises(ArchiveFull):
        first = shape.sink + 500
        archives.deposit(used, first, _deposit_of(shape, 300), _tags_of(shape, 300))
    assert (unused.expired, used.expired) == (True, False)


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
        assert reason_of(partial(stub.CloseArchive, close)) == not_found
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


def _tags_of(shape: EvictedShape, count: int) -> Tags:
    return np.zeros((len(shape.layers), count), np.uint64)


def _deposit_of(shape: EvictedShape, count: int) -> EvictedKeysValues:
    arrays: Iterator[Any] = (np.zeros(sizes, dtype) for dtype, sizes in shape.arrays(count))
    return EvictedKeysValues(tuple(arrays))
