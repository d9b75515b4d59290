"""Sessions whose evicted positions several archives share, over real data connections."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.node.admission.limits import ArchiveLimits
from kakeya_fleet.node.roles.archive import remote_store
from kakeya_fleet.node.roles.archive.next_range import RangePart
from kakeya_fleet.node.roles.archive.shared_store import HeldRange, SharedEvictedStore, Sharing
from tests.support import evicted_stores, range_nodes
from tests.support.breadth import wide

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
CHUNK = 1024
END = 3 * CHUNK + 300


@pytest.fixture
def nodes(nodes_of_ranges: range_nodes.Nodes) -> range_nodes.Nodes:
    return nodes_of_ranges


@pytest.fixture
def shape(nodes: range_nodes.Nodes) -> EvictedShape:
    return nodes.shape


@pytest.mark.parametrize(
    ("rooms", "cut"),
    [((8,), 1500), wide((2, 8), 16), wide((1, 1, 8), 1500), ((1, 2, 8), 16)],
    ids=str,
)
def test_one_two_and_three_archives_have_the_same_bits(
    nodes: range_nodes.Nodes, shape: EvictedShape, rooms: tuple[int, ...], cut: int
) -> None:
    alone = nodes.alone()
    for index, room in enumerate(rooms):
        nodes.start(f"n{index}", room)
    store = nodes.session()
    nodes.fill(store, END, cut)
    assert store.length == END
    borders = [0, *itertools.accumulate(room * CHUNK for room in rooms[:-1])]
    assert [part.first for part in store.ranges] == [max(shape.sink, at) for at in borders]
    assert [held.where and held.where.node_id for held in store.ranges] == [
        f"n{at}" for at in range(len(rooms))
    ]
    assert store.ranges[-1].end == END
    for layer, count, first in itertools.product((0, 2, 3), (1, 7, 40), (5, 1030, 2100, END - 40)):
        queries = nodes.queries(layer, first, count, seed=first)
        assert nodes.bits(store, queries) == nodes.bits(alone, queries), (layer, first, count)
    # Several questions under way at once, and some dropped between.
    questions = [nodes.queries(0, END, 3, seed=at) for at in range(3)]
    expected = [nodes.bits(alone, queries) for queries in questions]
    for queries in questions:
        store.begin(queries)
    assert nodes.finished(store) == expected[0]
    store.abandon()
    assert nodes.bits(store, questions[2]) == expected[2]
    assert not nodes.faults
    store.release()


def test_wide_queries_are_carried_in_pieces(
    nodes: range_nodes.Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "query_pieces", pieces_of_16)
    alone = nodes.alone()
    for name, room in (("a", 1), ("b", 1), ("c", 2)):
        nodes.start(name, room)
    store = nodes.session()
    nodes.fill(store, END, 200)
    queries = nodes.queries(0, END - 100, 64, seed=0)
    expected = nodes.bits(alone, queries)
    assert nodes.bits(store, queries) == expected
    store.begin(queries)
    store.begin(queries)
    store.finish()
    store.abandon()
    assert nodes.bits(store, queries) == expected
    store.release()


def pieces_of_16(whole: Any) -> list[Any]:
    return [
        replace(
            whole,
            first=whole.first + start,
            queries=np.ascontiguousarray(whole.queries[:, start : start + 16]),
        )
        for start in range(0, whole.queries.shape[1], 16)
    ]


def test_the_next_archive_is_asked_for_before_it_is_needed(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    nodes.start("a", 1)
    nodes.start("b", 8)
    store = nodes.session()
    nodes.fill(store, CHUNK - 300, 16)
    assert not nodes.wanted
    nodes.fill(store, CHUNK - 200, 16)
    (wanted,) = nodes.wanted
    assert (wanted.first, wanted.end) == (CHUNK, 2 * CHUNK)
    assert len(nodes.nodes[1].archives) == 1
    assert store.ranges == (HeldRange(nodes.nodes[0].where, shape.sink, CHUNK - 200),)
    nodes.fill(store, CHUNK + 16, 16)
    assert [held.first for held in store.ranges] == [shape.sink, CHUNK]
    # From there on there is room in the second, which is asked for it chunk by chunk.
    nodes.fill(store, END, 16)
    assert len(nodes.wanted) == 1
    assert len(store.ranges) == 2
    store.release()


@pytest.mark.parametrize("length", [wide(END), 2 * CHUNK - 5, CHUNK, 1])
def test_a_fork_is_over_forks_of_the_parts(
    nodes: range_nodes.Nodes, shape: EvictedShape, length: int
) -> None:
    for name, room in (("a", 3), ("b", 5), ("c", 9)):
        nodes.start(name, room)
    # The first has room for the forks' copies, and not for another chunk of the session.
    blocker = nodes.part(nodes.nodes[0], 0, 1)
    blocker.store.reserve(2 * CHUNK)
    store = nodes.session()
    nodes.fill(store, END, 500)
    blocker.store.release()
    nodes.until(lambda: nodes.nodes[0].stores.used_bytes == CHUNK * shape.bytes_per_position)
    alone = nodes.alone()
    fork = store.fork(length)
    assert fork.length == (length if length > shape.sink else 0)
    assert len(fork.ranges) == (2 if length > CHUNK else 1)
    # Both go on, past what they share.
    nodes.fill(fork, END, 300)
    queries = nodes.queries(2, END, 4, seed=4)
    expected = nodes.bits(alone, queries)
    assert nodes.bits(fork, queries) == expected
    store.release()
    assert nodes.bits(fork, queries) == expected
    fork.release()


def test_a_fork_without_room_leaves_the_session_as_it_was(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    nodes.start("a", 1)
    nodes.start("b", 5, ArchiveLimits(at_once=2))
    store = nodes.session()
    nodes.fill(store, END, 500)
    queries = nodes.queries(2, END, 4, seed=4)
    before = nodes.bits(store, queries)
    # The second part has none.
    other = nodes.part(nodes.nodes[1])
    with pytest.raises(OutOfKvMemory):
        store.fork(END - 10)
    other.store.release()
    nodes.until(lambda: len(nodes.nodes[0].archives) == len(nodes.nodes[1].archives) == 1)
    assert nodes.bits(store, queries) == before
    store.release()


def test_sessions_over_the_same_archives_do_not_meet(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    """Interleaved step by step, in two threads, each as if it were alone."""
    # A first chunk is taken as it fills: they fill theirs side by side, so that neither can
    # take a second one while the other still needs room for the rest of its first.
    nodes.start("a", 2)
    nodes.start("b", 20)
    side_by_side = threading.Barrier(2, timeout=30)
    results: dict[int, list[bytes]] = {}

    def run(seed: int, store: EvictedStore, in_step: Callable[[], object]) -> list[bytes]:
        found = []
        for step in range(60):
            evicted = evicted_stores.random_evicted(shape, 48, seed=1000 * seed + step)
            store.deposit(max(store.length, shape.sink), evicted)
            queries = nodes.queries(2, store.length, 3, seed=seed)
            found.append(nodes.bits(store, queries))
            if store.length < CHUNK:
                in_step()
        return found

    def work(seed: int) -> None:
        store = nodes.session()
        try:
            results[seed] = run(seed, store, side_by_side.wait)
            assert len(store.ranges) == 2
        finally:
            store.release()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2):
        alone = TorchEvictedStore(shape, ARCHIVE, kv_pool(), chunk_keys=CHUNK)
        assert results[seed] == run(seed, alone, lambda: None)
    assert results[1] != results[2]


def test_memory_here_is_left_for_an_archive_at_the_next_chunk(
    nodes: range_nodes.Nodes, shape: EvictedShape
) -> None:
    own = kv_pool(8 * CHUNK * shape.bytes_per_position)
    here = TorchEvictedStore(shape, ARCHIVE, own, chunk_keys=CHUNK)
    nodes.start("nobody", 0.5)
    sharing = Sharing(shape, ARCHIVE, None, nodes.open_next, 1.0, CHUNK)
    store = SharedEvictedStore(sharing, (RangePart(here, None),))
    nodes.fill(store, 2 * CHUNK - 300, 16)
    # No archive had room for the second chunk: it stays here.
    assert [wanted.first for wanted in nodes.wanted] == [CHUNK]
    assert [*store.ranges] == [HeldRange(None, shape.sink, 2 * CHUNK - 300)]
    assert store.own_bytes == store.stored_bytes == own.used_bytes
    late = nodes.start("late", 8)
    nodes.fill(store, END, 16)
    assert [held.where for held in store.ranges] == [None, late.where]
    assert store.ranges[1].first == 2 * CHUNK
    # What is here does not grow any more.
    assert store.own_bytes == own.used_bytes == 2 * CHUNK * shape.bytes_per_position
    alone = nodes.alone()
    queries = nodes.queries(2, END, 4, seed=4)
    assert nodes.bits(store, queries) == nodes.bits(alone, queries)
    store.release()
    assert own.used_bytes == 0
