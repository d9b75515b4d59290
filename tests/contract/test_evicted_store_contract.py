"""The contract of evicted stores, for every one of them: naive, on torch, in another thread
behind the wire, attending here to what another keeps, and several that share a session."""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedKeysValues,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.packed_segments import PackedKernels
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.engine.restoration.segment_store import SegmentStore
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_connection import MeantNode, OpenConnections
from kakeya_fleet.node.roles.archive.next_range import RangePart
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.shared_store import SharedEvictedStore, Sharing
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from tests.support import evicted_stores, trusted_nodes
from tests.support.allowances import allowances_of
from tests.support.breadth import again, all_wide_but

BUDGET_BYTES = 6 << 20
SHARED_CHUNK = 1024
MakeStore = Callable[[EvictedShape], EvictedStore]


def spec_of(shape: EvictedShape) -> RestorerSpec:
    return RestorerSpec(RestorerKind.ARCHIVE, codec=shape.codec)


class TorchStores:
    """Stores on torch, as a node's archives make them."""

    arithmetic = "test"

    def __init__(self) -> None:
        self._pool: SlabPool[Any] = kv_pool(BUDGET_BYTES)

    @property
    def budget_bytes(self) -> int:
        return BUDGET_BYTES

    @property
    def used_bytes(self) -> int:
        return self._pool.used_bytes

    def check(self, opening: Opening) -> None:
        return

    def make(self, opening: Opening) -> TorchEvictedStore:
        return TorchEvictedStore(opening.shape, opening.restorer, self._pool)


class OneChunk(TorchEvictedStore):
    """A store that has room for one chunk alone, so that another follows it."""

    def reserve(self, end: int) -> None:
        if end > self.origin + SHARED_CHUNK:
            raise OutOfKvMemory("no room for another chunk", needed_bytes="1", free_bytes="0")
        super().reserve(end)


class SharedStores:
    """Stores that share a session, a chunk each."""

    def __init__(self) -> None:
        self._pool: SlabPool[Any] = kv_pool(BUDGET_BYTES)

    def make(self, shape: EvictedShape) -> EvictedStore:
        spec = spec_of(shape)

        def part(first: int = 0) -> RangePart:
            store = OneChunk(shape, spec, self._pool, origin=first, chunk_keys=SHARED_CHUNK)
            # Not the verifier's own process: that would look for an archive first.
            return RangePart(store, ArchiveCandidate("n", "n", "", 0.0, ""))

        sharing = Sharing(
            shape, spec, None, lambda wanted: wanted.offer(part(wanted.first)), 1.0, SHARED_CHUNK
        )
        return SharedEvictedStore(sharing, (part(),))


@contextmanager
def far_stores(here: Trust | None = None, there: Trust | None = None) -> Iterator[MakeStore]:
    """Stores of a server of this process, which serves as the member `here`, if it is one."""
    meant = MeantNode(here.node_id, there) if here is not None and there is not None else None
    numbers = map(str, itertools.count())
    archives = Archives(
        TorchStores(), allowances_of(), clock=time.monotonic, ids=lambda: next(numbers)
    )
    server = ArchiveServer(archives, NodeMetrics(), "127.0.0.1", here)
    node_id = here.node_id if here is not None else ""
    with Channels(there).open_blocking(f"127.0.0.1:{server.port}", node_id) as channel:
        stub = ArchiveServiceStub(channel)

        def make(shape: EvictedShape) -> EvictedStore:
            opened = stub.OpenArchive(opening_to_wire(Opening(spec_of(shape), shape, "digest")))
            way = ArchiveWay(
                host="127.0.0.1",
                port=opened.data_port,
                deadline_seconds=10.0,
                connections=OpenConnections(),
                on_fault=lambda _fault: None,
                on_round_trip=lambda _seconds: None,
                meant=meant,
            )
            return RemoteEvictedStore(way, opened.archive_id, shape, spec_of(shape))

        yield make
    server.close()
    assert not len(archives)


@pytest.fixture(scope="module")
def far() -> Iterator[MakeStore]:
    """In plain text."""
    with far_stores() as make:
        yield make


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeStore]:
    """Between two members of a fleet with an authority."""
    with far_stores(*trusted_nodes.fleet_of(tmp_path_factory.mktemp("fleet"), 2)) as make:
        yield make


STORES = ("naive", "torch", "mlx", "remote", "sealed", "shared")


# `naive` is what the others are compared with.
@pytest.fixture(scope="module", params=all_wide_but(STORES[1:], STORES))
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    if request.param == "naive":
        return lambda shape: evicted_stores.NaiveEvictedStore(shape, spec_of(shape))
    if request.param in ("remote", "sealed"):
        far_away: MakeStore = request.getfixturevalue(
            "far" if request.param == "remote" else "sealed"
        )
        return far_away
    if request.param == "shared":
        return SharedStores().make
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
        module = importlib.import_module("kakeya_fleet.engine.backends.mlx_backend.kernels")
        mlx_pool = kv_pool(BUDGET_BYTES)

        def on_mlx(shape: EvictedShape) -> EvictedStore:
            kernels = module.MlxKernels(shape.dtype)
            codec = shape.kv_codec
            used = kernels if codec is None else PackedKernels(kernels, codec)
            return SegmentStore(shape, spec_of(shape), used, mlx_pool)

        return on_mlx
    pool = kv_pool(BUDGET_BYTES)
    return lambda shape: TorchEvictedStore(shape, spec_of(shape), pool)


def asked(store: EvictedStore, queries: EvictedQueries) -> PartialAttention:
    store.begin(queries)
    return store.finish()


def same_bits(one: PartialAttention, other: PartialAttention) -> bool:
    return all(
        np.array_equal(getattr(one, name).view(np.uint32), getattr(other, name).view(np.uint32))
        for name in ("output", "total", "maximum")
    )


def filled(make: MakeStore, naive: ModuleType, shape: EvictedShape, end: int) -> EvictedStore:
    store = make(shape)
    whole = naive.random_evicted(shape, end - shape.sink, seed=1)
    store.deposit(shape.sink, whole)
    return store


@pytest.mark.parametrize(("end", "dtype"), [(320, "float32"), (320, "bfloat16"), (3500, "float32")])
def test_attention_is_that_of_the_rule(make_store: MakeStore, end: int, dtype: str) -> None:
    """Past the first segment, into the coarse ones, and where queries see nothing yet."""
    shape = evicted_stores.small_shape(dtype)
    store = filled(make_store, evicted_stores, shape, end)
    naive = filled(evicted_stores.NaiveEvictedStore, evicted_stores, shape, end)
    blocks = ((10, 16), (100, 5), (end - 6, 19), (end + 10, 1))
    for layer, (first, count) in itertools.product((0, 2, 3), blocks):
        queries = evicted_stores.random_queries(shape, layer, first, count, seed=first)
        found, expected = asked(store, queries), asked(naive, queries)
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(
            evicted_stores.divided(found),
            evicted_stores.divided(expected),
            atol=tolerance,
            rtol=tolerance,
        )
        seen = expected.total > 0
        assert np.array_equal(found.total > 0, seen)
        assert (found.maximum[~seen] == NOTHING_SEEN).all()
        assert not found.output[np.broadcast_to(~seen, found.output.shape)].any()
        highest = expected.maximum[seen]
        np.testing.assert_allclose(found.maximum[seen], highest, atol=0.02, rtol=1e-2)
        # The weight of the part when it is merged with another.
        weight = np.log(found.total[seen]) + found.maximum[seen]
        expected_weight = np.log(expected.total[seen]) + expected.maximum[seen]
        np.testing.assert_allclose(weight, expected_weight, atol=10 * tolerance)
    store.release()


LANES = 16
"""Channels of which the compiled library takes multiples."""


def packed_shape(dtype: str = "bfloat16") -> EvictedShape:
    plain = evicted_stores.small_shape(dtype, sink=TILE, head_dims=(16, 8))
    return replace(plain, codec="kvarn4")


@pytest.mark.parametrize(
    ("make_store", "end", "dtype"),
    # A long history is in coarse segments, and in several stores that share it: what comes over
    # the wire is the same, and MLX reads such segments in `test_packed_stores`.
    all_wide_but(
        lambda case: case[0] in (STORES[1:] if case[1] == 384 else ("torch", "shared")),
        [
            (store, *history)
            for store in STORES
            for history in ((384, "float32"), (3392, "bfloat16"))
        ],
        several=True,
    ),
    indirect=["make_store"],
)
def test_attention_to_what_is_packed_is_that_of_the_rule(
    make_store: MakeStore, end: int, dtype: str
) -> None:
    """Whole tiles alone are seen; deposits come in pieces, and a fork goes on from a tile."""
    shape = packed_shape(dtype)
    whole = evicted_stores.random_evicted(shape, end - shape.sink, seed=1)
    naive = evicted_stores.NaiveEvictedStore(shape, spec_of(shape))
    naive.deposit(shape.sink, whole)
    at_once, piecewise = make_store(shape), make_store(shape)
    at_once.deposit(shape.sink, whole)
    borders = sorted({0, TILE, 4 * TILE, end - shape.sink - TILE, end - shape.sink})
    for low, high in itertools.pairwise(borders):
        piecewise.deposit(shape.sink + low, shape.part(whole, low, high))
    fork = piecewise.fork(end - 3)
    assert fork.length == end - TILE
    fork.deposit(end - TILE, shape.part(whole, end - shape.sink - TILE, end - shape.sink))
    blocks = ((10, 16), (2 * TILE + shape.window - 3, 5), (end - 6, 19), (end + 10, 1))
    for layer, (first, count) in itertools.product((0, 2, 3), blocks):
        queries = evicted_stores.random_queries(shape, layer, first, count, seed=first)
        found, expected = asked(at_once, queries), asked(naive, queries)
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        if shape.group_of[layer].shape.head_dim % LANES == 0:
            # Where such tiles are read as they lie, queries and weights have eight bits.
            tolerance = 5e-2
        np.testing.assert_allclose(
            evicted_stores.divided(found),
            evicted_stores.divided(expected),
            atol=tolerance,
            rtol=min(tolerance, 2e-2),
        )
        assert np.array_equal(found.total > 0, expected.total > 0)
        assert same_bits(asked(piecewise, queries), found)
        assert same_bits(asked(fork, queries), found)
    plain = replace(shape, codec="")
    assert at_once.stored_bytes < 0.6 * (end - shape.sink) * plain.bytes_per_position
    for store in (at_once, piecewise, fork):
        store.release()


def test_what_is_no_whole_tile_is_refused(make_store: MakeStore) -> None:
    shape = packed_shape()
    store = make_store(shape)
    whole = evicted_stores.random_evicted(shape, 2 * TILE, seed=1)
    plain = evicted_stores.random_evicted(replace(shape, codec=""), TILE, seed=1)
    spoilt = EvictedKeysValues(tuple(array.copy() for array in whole.groups))
    spoilt.groups[1].view(np.uint8)[..., -1] = 0x7C
    short = EvictedKeysValues(tuple(array[..., :-1].copy() for array in whole.groups))
    for bad in (plain, spoilt, short):
        with pytest.raises(RestorerRefused):
            store.deposit(shape.sink, bad)
    with pytest.raises(ValueError, match="position"):
        store.deposit(shape.sink + 1, whole)
    store.deposit(shape.sink, whole)
    late = evicted_stores.random_queries(shape, 0, shape.sink + 2 * TILE, 1, seed=1)
    assert asked(store, late).total.all()
    store.release()


@again(3)
@settings(deadline=None, max_examples=4)
@given(
    dtype=st.sampled_from(["float32", "bfloat16"]),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    first=st.integers(20, 200),
    count=st.integers(2, 40),
    cut=st.integers(1, 39),
)
def test_bits_depend_on_history_and_position_alone(
    make_store: MakeStore, dtype: str, cuts: list[int], first: int, count: int, cut: int
) -> None:
    shape = evicted_stores.small_shape(dtype)
    end = shape.sink + sum(cuts)
    at_once = filled(make_store, evicted_stores, shape, end)
    piecewise = make_store(shape)
    whole = evicted_stores.random_evicted(shape, end - shape.sink, seed=1)
    start = 0
    for length in cuts:
        piecewise.deposit(shape.sink + start, evicted_stores.part(whole, start, start + length))
        start += length
    assert piecewise.length == at_once.length == end
    first = min(first, end)
    count = max(1, min(count, end + shape.window - first))
    queries = evicted_stores.random_queries(shape, 2, first, count, seed=3)
    expected = asked(at_once, queries)
    assert same_bits(asked(piecewise, queries), expected)
    # Row by row and cut elsewhere, in several requests that are under way together.
    cut = min(cut, count)
    borders = sorted({0, cut, min(cut + 1, count), count})
    parts = [
        EvictedQueries(2, first + a, queries.scaling, queries.queries[:, a:b].copy())
        for a, b in itertools.pairwise(borders)
    ]
    for part in parts:
        piecewise.begin(part)
    for (a, b), _part in zip(itertools.pairwise(borders), parts, strict=True):
        found = piecewise.finish()
        own = PartialAttention(
            expected.output[:, a:b], expected.total[:, a:b], expected.maximum[:, a:b]
        )
        assert np.array_equal(found.output, own.output)
        assert np.array_equal(found.total, own.total)
        assert np.array_equal(found.maximum, own.maximum)
    at_once.release()
    piecewise.release()


def test_an_empty_store_answers_nothing_seen(make_store: MakeStore) -> None:
    shape = evicted_stores.small_shape()
    store = make_store(shape)
    assert store.length in (0, shape.sink)
    found = asked(store, evicted_stores.random_queries(shape, 3, 0, 4, seed=0))
    assert not found.total.any()
    assert not found.output.any()
    assert (found.maximum == NOTHING_SEEN).all()
    store.release()


def test_a_fork_has_the_shorter_history_and_goes_its_own_way(make_store: MakeStore) -> None:
    shape = evicted_stores.small_shape()
    store = filled(make_store, evicted_stores, shape, 300)
    queries = evicted_stores.random_queries(shape, 0, 250, 4, seed=2)
    late = evicted_stores.random_queries(shape, 0, 305, 4, seed=2)
    before = asked(store, late)
    fork = store.fork(280)
    assert fork.length == 280
    assert fork.spec == store.spec
    assert same_bits(asked(fork, queries), asked(store, queries))
    fork.deposit(280, evicted_stores.random_evicted(shape, 40, seed=77))
    assert not same_bits(asked(fork, late), before)
    assert same_bits(asked(store, late), before)
    empty = store.fork(1)
    assert empty.length <= shape.sink
    store.release()
    assert asked(fork, late).total.all()
    fork.release()
    empty.release()


def bad_deposits(shape: EvictedShape) -> Iterator[EvictedKeysValues]:
    """Five positions each: no numbers, and arrays of other shapes and formats."""
    for group, place in ((1, (0, 1, 0, 4, 3)), (0, (1, 0, 1, 0, 0))):
        groups = evicted_stores.random_evicted(shape, 5, seed=5).groups
        not_finite = 0x7F80 if shape.dtype == "bfloat16" else (np.nan, -np.inf)[group]
        groups[group][place] = not_finite
        yield EvictedKeysValues(groups)
    groups = evicted_stores.random_evicted(shape, 5, seed=5).groups
    yield EvictedKeysValues((groups[0][:, :, :1].copy(), groups[1]))
    yield EvictedKeysValues(groups[:1])
    wide = tuple(group.astype(np.float64) for group in groups)
    yield EvictedKeysValues(wide)  # type: ignore[arg-type]  # what the wire may not bring


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bad_deposits_are_refused_and_change_nothing(make_store: MakeStore, dtype: str) -> None:
    shape = evicted_stores.small_shape(dtype)
    store = filled(make_store, evicted_stores, shape, 60)
    queries = evicted_stores.random_queries(shape, 3, 60, 4, seed=4)
    expected = asked(store, queries)
    for bad in bad_deposits(shape):
        with pytest.raises(RestorerRefused):
            store.deposit(60, bad)
        assert store.length == 60
        assert same_bits(asked(store, queries), expected)
    store.deposit(60, evicted_stores.random_evicted(shape, 5, seed=5))
    assert store.length == 65
    store.release()


def test_bad_queries_are_refused(make_store: MakeStore) -> None:
    shape = evicted_stores.small_shape()
    store = filled(make_store, evicted_stores, shape, 60)
    good = evicted_stores.random_queries(shape, 0, 60, 4, seed=4)
    not_finite = good.queries.copy()
    not_finite[0, 0, 0] = np.nan
    for bad in (
        EvictedQueries(0, 60, 1.0, not_finite),
        EvictedQueries(1, 60, 1.0, good.queries),
        EvictedQueries(0, 60, 1.0, good.queries[:1].copy()),
        EvictedQueries(0, 4095, 1.0, good.queries),
    ):
        with pytest.raises(RestorerRefused):
            store.begin(bad)
    assert asked(store, good).total.all()
    store.release()


def test_positions_follow_each_other_and_are_there_when_they_are_asked_for(
    make_store: MakeStore,
) -> None:
    shape = evicted_stores.small_shape()
    store = filled(make_store, evicted_stores, shape, 60)
    for first in (59, 61):
        with pytest.raises(ValueError, match="position"):
            store.deposit(first, evicted_stores.random_evicted(shape, 5, seed=5))
    with pytest.raises(ValueError, match="position"):
        store.begin(evicted_stores.random_queries(shape, 0, 70, 4, seed=4))
    assert asked(store, evicted_stores.random_queries(shape, 0, 69, 4, seed=4)).total.all()
    store.release()


def test_what_is_abandoned_is_never_answered_and_a_released_store_is_lost(
    make_store: MakeStore,
) -> None:
    shape = evicted_stores.small_shape()
    store = filled(make_store, evicted_stores, shape, 60)
    queries = evicted_stores.random_queries(shape, 0, 60, 4, seed=4)
    expected = asked(store, queries)
    for seed in range(3):
        store.begin(evicted_stores.random_queries(shape, 0, 50, 3, seed=seed))
    store.abandon()
    assert same_bits(asked(store, queries), expected), "what was abandoned was answered"
    store.begin(queries)
    store.release()
    store.release()
    store.abandon()
    with pytest.raises(RestorerLost):
        store.begin(queries)
    with pytest.raises(RestorerLost):
        store.finish()
    with pytest.raises(RestorerLost):
        store.deposit(60, evicted_stores.random_evicted(shape, 1, seed=5))
    with pytest.raises(RestorerLost):
        store.fork(60)


def test_long_histories_and_wide_blocks_travel_in_pieces(make_store: MakeStore) -> None:
    """More than a message of a few MB holds, both ways."""
    shape = evicted_stores.small_shape()
    count = 4000
    assert count * shape.bytes_per_position > (1 << 20)
    store = filled(make_store, evicted_stores, shape, shape.sink + count)
    found = asked(store, evicted_stores.random_queries(shape, 3, 2000, 64, seed=1))
    assert found.output.shape == (3, 64, 4)
    assert found.total.all()
    assert store.stored_bytes >= count * shape.bytes_per_position
    store.release()


@pytest.mark.parametrize(
    "make_store", all_wide_but(["torch", "mlx", "remote", "shared"], STORES), indirect=True
)
def test_memory_comes_back(make_store: MakeStore) -> None:
    """As many full stores after each other as would never fit together."""
    shape = evicted_stores.small_shape()
    each = 4096 * shape.bytes_per_position
    evicted = evicted_stores.random_evicted(shape, 4000, seed=0)
    for _ in range(2 * BUDGET_BYTES // each):
        store = make_store(shape)
        store.deposit(shape.sink, evicted)
        asked(store, evicted_stores.random_queries(shape, 3, 2000, 1, seed=1))
        store.release()
