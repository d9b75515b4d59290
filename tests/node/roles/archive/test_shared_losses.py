"""Archives that share a session and are lost, late or full: all of them are one."""

from __future__ import annotations

import socket
import time
from functools import partial

import pytest

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.node.roles.archive.next_range import NextRange, RangePart
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from kakeya_fleet.node.roles.archive.shared_store import SharedEvictedStore, Sharing
from tests.support import evicted_stores, range_nodes

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
CHUNK = 1024
END = 3 * CHUNK + 300


@pytest.fixture
def nodes(nodes_of_ranges: range_nodes.Nodes) -> range_nodes.Nodes:
    return nodes_of_ranges


@pytest.fixture
def shape(nodes: range_nodes.Nodes) -> EvictedShape:
    return nodes.shape


def is_empty(node: range_nodes.Node) -> bool:
    return node.stores.used_bytes == 0


def test_one_that_was_opened_ahead_and_is_lost_before_it_is_used_is_no_loss(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    first, second, third = (
        nodes.start(name, room) for name, room in (("a", 1), ("b", 8), ("c", 8))
    )
    store = nodes.session()
    nodes.fill(store, CHUNK - 100, 16)
    assert len(second.archives) == 1
    second.archives.cut_off()
    nodes.until(lambda: not len(second.archives))
    nodes.fill(store, END, 16)
    assert [held.where for held in store.ranges] == [first.where, third.where]
    assert nodes.asked(store, nodes.queries(0, END, 2, seed=0)).total.all()
    store.release()


def test_queries_alone_keep_an_archive_from_expiring(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    """The first of two takes no deposit any more."""
    first = nodes.start("a", 1)
    nodes.start("b", 8)
    store = nodes.session()
    nodes.fill(store, CHUNK + 50, 100)
    queries = nodes.queries(0, CHUNK + 50, 2, seed=0)
    nodes.asked(store, queries)
    later = time.monotonic()
    nodes.asked(store, queries)
    lease = first.archives.settings.default_lease_seconds
    assert not first.archives.sweep(later + lease)
    assert nodes.asked(store, queries).total.all()
    assert first.archives.sweep(time.monotonic() + lease) == 1
    with pytest.raises(RestorerLost):
        nodes.asked(store, queries)
    store.release()


def test_one_that_is_opened_too_late_is_released(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    nodes.start("a", 1)
    nodes.start("b", 8)
    wanted: list[NextRange] = []
    store = nodes.session(wanted.append)
    nodes.fill(store, CHUNK, 16)
    began = time.monotonic()
    with pytest.raises(RestorerLost, match=f"positions from {CHUNK} on"):
        nodes.fill(store, CHUNK + 1, 1)
    assert time.monotonic() - began > 0.9
    assert not wanted[0].is_wanted
    nodes.open_next(wanted[0])
    store.release()


def test_without_another_archive_the_session_is_lost_by_name_and_gives_all_back(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    nodes.start("a", 2)
    store = nodes.session()
    with pytest.raises(RestorerLost, match="every archive is full"):
        nodes.fill(store, END, 100)
    with pytest.raises(RestorerLost, match="every archive is full"):
        store.begin(nodes.queries(0, 30, 1, seed=0))
    nodes.until(lambda: nodes.nodes[0].stores.used_bytes == 0)
    assert store.failed_nodes == frozenset()
    store.abandon()
    store.release()
    # A node whose archive was given up with the others has not failed.
    assert store.failed_nodes == frozenset()


@pytest.mark.parametrize(
    ("moment", "which"), [("deposit", 2), ("queries", 0), ("carry", 1), ("carry", 2)]
)
def test_one_lost_part_loses_all_of_them(
    nodes: range_nodes.Nodes, shape: EvictedShape, which: int, moment: str
) -> None:
    for name, room in (("a", 1), ("b", 1), ("c", 2)):
        nodes.start(name, room)
    store = nodes.session()
    nodes.fill(store, END, 500)
    queries = nodes.queries(0, END, 2, seed=0)
    nodes.asked(store, queries)
    if moment == "carry":
        store.begin(queries)
    nodes.nodes[which].archives.cut_off()

    def step() -> None:
        if moment == "deposit":
            for _ in range(40):
                store.deposit(store.length, evicted_stores.random_evicted(shape, 1, seed=0))
                nodes.asked(store, queries)
        if moment == "queries":
            store.begin(queries)
        store.finish()

    with pytest.raises(RestorerLost):
        step()
    assert store.failed_nodes == {nodes.nodes[which].name}
    for node in nodes.nodes:
        nodes.until(partial(is_empty, node))
    with pytest.raises(RestorerLost):
        store.fork(20)
    store.release()


def test_full_memory_here_is_a_lost_store(nodes: range_nodes.Nodes, shape: EvictedShape) -> None:
    own = kv_pool(CHUNK * shape.bytes_per_position // 2)
    here = TorchEvictedStore(shape, ARCHIVE, own, chunk_keys=CHUNK)
    sharing = Sharing(shape, ARCHIVE, None, nodes.open_next, 1.0, CHUNK)
    store = SharedEvictedStore(sharing, (RangePart(here, None),))
    with pytest.raises(RestorerLost) as lost:
        nodes.fill(store, CHUNK, 64)
    assert lost.value.metadata["fault"] == "full"
    assert own.used_bytes == 0


def test_a_socket_that_is_gone_is_no_answer(nodes: range_nodes.Nodes) -> None:
    """A killed archive in the middle of a carry: told at once, not by the deadline."""
    nodes.start("a", 1)
    nodes.start("b", 8)
    store = nodes.session()
    nodes.fill(store, CHUNK + 90, 100)
    queries = nodes.queries(0, CHUNK + 90, 2, seed=0)
    store.begin(queries)
    second = store._parts[1].store
    assert isinstance(second, RemoteEvictedStore)
    second._live()._connection._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(RestorerLost):
        store.finish()
    assert nodes.faults == [RestorerFault.UNREACHABLE]
    store.release()
