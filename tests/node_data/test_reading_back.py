"""What links for keys and values may take, how they are lost, and what sessions hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.fetched_attention import TorchFetchedAttention
from kakeya_fleet.engine.backends.torch_backend.group_store import torch_pool
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.restoration.fetched_store import FetchedEvictedStore, FetchedParts
from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.contract import LinkClosed, LinkPurpose, RoadKind
from kakeya_fleet.node.links.link_log import ChangeCause, LinkChange, LinkLog
from kakeya_fleet.node.links.link_table import LinkTable
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.attend import AttendAt
from kakeya_fleet.node.roles.archive.kv_fetch_links import KvFetchLinks
from kakeya_fleet.node.roles.archive.kv_read_wire import (
    MOST_READS,
    BadRead,
    reads_from_wire,
    reads_to_wire,
)
from kakeya_fleet.node.roles.archive.kv_reads import MOST_UNDER_WAY_BYTES, link_limits
from kakeya_fleet.node.roles.archive.session_restorer import RestorerChoice, SessionRestorer
from kakeya_fleet.node.roles.archive.session_restorers import Restorers, RestorerSettings
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from tests.support import evicted_stores, fetching

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)


def shape_of(kv_heads: int, head_dim: int, layers: int = 2) -> EvictedShape:
    group = LayerGroup(tuple(range(layers)), AttentionLayer(kv_heads, 1, head_dim))
    return EvictedShape((group,), "bfloat16", 4, 32, 1 << 17)


def change(at: float) -> LinkChange:
    purpose = LinkPurpose.KEYS_VALUES
    return LinkChange(at, "n", purpose, RoadKind.LOCAL, 1, ChangeCause.FASTER, "r")


@pytest_asyncio.fixture
async def made() -> AsyncIterator[Any]:
    ends = fetching.Fetching(evicted_stores.small_shape())
    kept = fetching.ArchiveStore(ends, ends.archive(ARCHIVE))
    parts = FetchedParts(ends.open_source, TorchFetchedAttention)
    store = await ends.in_thread(FetchedEvictedStore, kept, ends.shape, parts)
    yield ends, store
    await ends.close()


def test_a_link_takes_what_a_verifier_asks_for_ahead_and_no_more_than_its_wire_needs() -> None:
    small, large = shape_of(1, 16), shape_of(8, 128)
    assert link_limits(small).budget_bytes == 2 * CHUNK_KEYS * 2 * 16 * 2
    assert link_limits(large).budget_bytes == MOST_UNDER_WAY_BYTES


async def test_many_sessions_of_a_large_model_read_back_at_once() -> None:
    table = LinkTable(lambda: 0.0)
    for _ in range(64):
        table.open_for(wire.OpenLinkRequest(), None, link_limits(shape_of(8, 128)).budget_bytes)
    assert len(table) == 64


async def test_the_servicer_keeps_to_what_the_handler_says(made: Any) -> None:
    ends, _store = made
    request = wire.OpenLinkRequest(archive_id="0")
    assert ends.reads.check(request) == link_limits(ends.shape)


def test_a_request_of_very_many_reads_is_none() -> None:
    read = KvRead(0, 4, 5)
    limits = link_limits(shape_of(1, 16))
    most = reads_to_wire([read] * MOST_READS)
    assert len(most.data) == limits.most_tensor_bytes
    assert len(reads_from_wire(most)) == MOST_READS
    with pytest.raises(BadRead):
        reads_from_wire(reads_to_wire([read] * (MOST_READS + 1)))


async def test_very_many_reads_are_asked_for_in_several_tensors(made: Any) -> None:
    ends, store = made
    caller, _served = ends.ends[0]
    await ends.in_thread(store._source.request, [KvRead(0, 3, 4)] * (MOST_READS + 1))
    async with asyncio.timeout(5):
        while len(caller.sent) < 2:  # noqa: ASYNC110 no event
            await asyncio.sleep(0.01)
    assert [tensor.shape[0] for tensor in caller.sent] == [MOST_READS, 1]


async def test_what_is_kept_is_given_back_as_soon_as_the_link_is_lost(made: Any) -> None:
    """Who makes the session anew needs the memory before it lets go of the old store."""
    ends, store = made
    evicted = evicted_stores.random_evicted(ends.shape, 100, seed=1)
    await ends.in_thread(store.deposit, ends.shape.sink, evicted)
    await ends.ends[0][1].close()
    queries = evicted_stores.random_queries(ends.shape, 0, 100, 2, seed=0)

    def ask() -> None:
        store.begin(queries)
        store.finish()

    with pytest.raises(RestorerLost):
        await ends.in_thread(ask)
    assert ends.stores.used_bytes == 0
    await ends.in_thread(store.release)


async def test_a_link_that_is_closed_while_it_opens_is_a_lost_archive() -> None:
    class Closing:
        async def open(self, *_given: object, **_named: object) -> None:
            raise LinkClosed("the channel was closed")

    view = SimpleNamespace(self_id="self", channel=lambda _node: cast(grpc.aio.Channel, None))
    links = KvFetchLinks(cast(Any, Closing()), cast(Any, view), NodeMetrics(), 1.0)
    with pytest.raises(RestorerLost, match="the channel was closed"):
        await links._open("there", "archive", shape_of(1, 16))


async def test_a_session_hears_of_its_link_and_a_fork_of_its_own(made: Any) -> None:
    ends, store = made
    origin = SessionRestorer(RestorerChoice(attend=AttendAt.VERIFIER), ARCHIVE, ends.shape, "v")
    origin.use(store)
    made_fork = await ends.in_thread(store.fork, 0)
    restorers = restorers_of(NodeMetrics())
    forked = restorers.forked(origin, made_fork)
    store.source.news.add(change(2.0))
    made_fork.source.news.add(change(5.0))
    features = LinkLog()
    features.add(change(3.0))
    pairing = SimpleNamespace(link_log=features)
    none = cast(Any, None)
    session = OpenSession("s", 0, none, none, none, cast(Any, pairing), origin)
    assert [each.at for each in session.link_changes()] == [2.0, 3.0]
    assert session.link_changes() == ()
    assert [each.at for each in forked.link_log.news()] == [5.0]
    await ends.in_thread(made_fork.release)
    await ends.in_thread(store.release)


def restorers_of(metrics: NodeMetrics) -> Restorers:
    nobody = cast(Any, None)
    return Restorers(nobody, nobody, nobody, metrics, RestorerSettings(), {}, lambda: 0.0)


async def test_what_attends_here_and_is_kept_here_asks_no_archive_for_a_range() -> None:
    """An archive would attend to its range itself, with whatever arithmetic it has."""
    shape = EvictedShape(evicted_stores.small_shape().groups, "float32", 3, 13, 4 * CHUNK_KEYS)

    class Here:
        arithmetic = "torch"

        async def make(
            self, shape: EvictedShape, spec: RestorerSpec, _map: Path | None, end: int
        ) -> TorchEvictedStore:
            store = TorchEvictedStore(shape, spec, torch_pool())
            store.reserve(end)
            return store

    restorers = restorers_of(NodeMetrics())
    restorer = SessionRestorer(RestorerChoice(attend=AttendAt.VERIFIER), ARCHIVE, shape, "v")
    store = await restorers._kept_here(restorer, 100, Here(), "none is left")
    assert store is not None
    end = CHUNK_KEYS + 100
    for first in range(3, end, 1000):
        count = min(first + 1000, end) - first
        evicted = evicted_stores.random_evicted(shape, count, seed=first)
        await asyncio.to_thread(store.deposit, first, evicted)
    assert [held.where for held in restorer.ranges] == [None]
    assert not restorers._opening
    assert "goes to an archive again" not in " ".join(restorer.told)
    store.release()
