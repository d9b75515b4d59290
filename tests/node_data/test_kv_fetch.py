"""Keys and values that a verifier reads back from an archive, over a link: both ends of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.fetched_attention import TorchFetchedAttention
from kakeya_fleet.engine.backends.torch_backend.group_store import torch_pool
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.restoration.fetched_store import FetchedEvictedStore, FetchedParts
from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.contract import LinkClosed
from kakeya_fleet.node.links.wire_tensor import WireTensor
from kakeya_fleet.node.roles.archive import kv_reads
from kakeya_fleet.node.roles.archive.kv_read_wire import reads_to_wire, refusal_from_wire
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from kakeya_fleet.node.rpc.refusals import ArchiveNotFound
from tests.support import evicted_stores, fetching

SECONDS = 5.0


@pytest_asyncio.fixture
async def made() -> AsyncIterator[Callable[..., Any]]:
    """A fetched store over a link, and a store of the same positions that attends where it is."""
    started: list[Any] = []

    async def make(shape: EvictedShape, end: int, **fields: Any) -> Any:
        ends = fetching.Fetching(shape, **fields)
        started.append(ends)
        kept = fetching.ArchiveStore(ends, ends.archive(evicted_stores.ARCHIVE))
        parts = FetchedParts(ends.open_source, TorchFetchedAttention)
        store = await ends.in_thread(FetchedEvictedStore, kept, shape, parts)
        there = TorchEvictedStore(shape, evicted_stores.ARCHIVE, torch_pool())
        if end:
            evicted = evicted_stores.random_evicted(shape, end - shape.sink, seed=1)
            await ends.in_thread(store.deposit, shape.sink, evicted)
            there.deposit(shape.sink, evicted)
        return ends, store, there, kept

    yield make
    for ends in started:
        await ends.close()


def bits(partial: Any) -> bytes:
    parts = (partial.output, partial.total, partial.maximum)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def forward(evicted_stores: ModuleType, store: Any, first: int, count: int) -> list[bytes]:
    """What a forward asks of a store, layer by layer."""
    shape = evicted_stores.small_shape()
    found = []
    for layer in sorted(shape.group_of):
        store.begin(evicted_stores.random_queries(shape, layer, first, count, seed=layer))
        found.append(bits(store.finish()))
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("end", [20, 300, 4000])
async def test_what_is_read_back_over_a_link_gives_the_bits_of_attention_there(
    made: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, end: int
) -> None:
    # Many pieces: a segment of 256 positions in each.
    monkeypatch.setattr(kv_reads, "PIECE_BYTES", 1)
    fetching, store, there, _kept = await made(evicted_stores.small_shape(dtype), end)
    read = 0
    for count in (1, 18):
        first = max(0, end + 13 - count)
        found = await fetching.in_thread(forward, evicted_stores, store, first, count)
        assert found == forward(evicted_stores, there, first, count)
        # Each position of each layer once.
        read += max(0, first + count - 13 - 3) * store._shape.bytes_per_position
    assert sum(fetching.read_bytes) == read
    assert not fetching.faults


async def test_the_bytes_where_it_lies_are_told(made: Any) -> None:
    fetching, store, there, kept = await made(evicted_stores.small_shape(), 300)
    await fetching.in_thread(forward, evicted_stores, store, 290, 2)
    assert store.stored_bytes == kept.archive.store.stored_bytes == there.stored_bytes
    _caller, served = fetching.ends[0]
    assert [tensor.name for tensor in served.sent].count("stored") == 1


async def test_a_read_waits_for_the_deposit_that_is_on_its_way(made: Any) -> None:
    fetching, store, there, kept = await made(evicted_stores.small_shape(), 300)
    held: list[Callable[[], None]] = []
    kept.deposit_now = held.append
    more = evicted_stores.random_evicted(there._shape, 40, seed=2)
    await fetching.in_thread(store.deposit, 300, more)
    there.deposit(300, more)
    waiting = asyncio.ensure_future(fetching.in_thread(forward, evicted_stores, store, 340, 4))
    caller, served = fetching.ends[0]
    while not caller.sent:  # noqa: ASYNC110 - a list wakes nobody
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(tensor.name.startswith("kv.") for tensor in served.sent)
    await asyncio.to_thread(held[0])
    assert await waiting == forward(evicted_stores, there, 340, 4)


async def test_a_deposit_that_never_comes_loses_the_restorer_in_time(made: Any) -> None:
    fetching, store, _there, kept = await made(
        evicted_stores.small_shape(), 300, deposit_seconds=0.05
    )
    kept.deposit_now = lambda _deposit: None
    more = evicted_stores.random_evicted(evicted_stores.small_shape(), 40, seed=2)
    await fetching.in_thread(store.deposit, 300, more)
    with pytest.raises(RestorerLost, match="those below 300 were deposited"):
        await fetching.in_thread(forward, evicted_stores, store, 340, 4)
    assert fetching.faults == [RestorerFault.REFUSED]
    await asyncio.wait(fetching.tasks, timeout=SECONDS)
    assert all(task.done() for task in fetching.tasks)


@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("how", ["released", "link", "frozen"])
async def test_an_archive_that_ends_loses_the_restorer_at_any_layer(
    made: Any, how: str, moment: int
) -> None:
    fetching, store, _there, kept = await made(
        evicted_stores.small_shape(), 300, deadline_seconds=0.3 if how == "frozen" else SECONDS
    )
    caller, served = fetching.ends[0]
    count = itertools.count()

    def struck(tensor: WireTensor) -> WireTensor | None:
        if tensor.name.startswith("kv.") and next(count) == moment:
            if how == "released":
                fetching.archives.release(kept.archive)
            elif how == "link":
                raise LinkClosed("torn")
            else:
                served.spoil = lambda _tensor: None
                return None
        return tensor

    served.spoil = struck
    with pytest.raises(RestorerLost):
        for _ in range(2):
            await fetching.in_thread(forward, evicted_stores, store, 300, 4)
    with pytest.raises(RestorerLost):
        await fetching.in_thread(store.fork, 100)
    await asyncio.wait(fetching.tasks, timeout=SECONDS)
    assert caller.closed
    assert all(task.done() for task in fetching.tasks)
    assert fetching.faults == [
        {
            "released": RestorerFault.REFUSED,
            "link": RestorerFault.UNREACHABLE,
            "frozen": RestorerFault.DEADLINE,
        }[how]
    ]


LIES = {
    "another layer": lambda tensor: replace(tensor, name="kv.7"),
    "another position": lambda tensor: replace(tensor, first_position=4),
    "more": lambda tensor: replace(
        tensor,
        shape=(2, *(tensor.shape[1],), tensor.shape[2] * 100, tensor.shape[3]),
        data=bytes(tensor.data) * 100,
    ),
    "a number": lambda tensor: replace(tensor, name="stored", data=b"123"),
    "not finite": lambda tensor: replace(tensor, data=b"\xff" * len(tensor.data)),
    "other heads": lambda tensor: replace(
        tensor, shape=(2, 1, tensor.shape[1] * tensor.shape[2], tensor.shape[3])
    ),
    "another format": lambda tensor: replace(
        tensor, dtype=wire.TENSOR_DTYPE_INT8, shape=(len(tensor.data),)
    ),
    "half": lambda tensor: replace(
        tensor, shape=(1, *tensor.shape[1:]), data=tensor.data[: len(tensor.data) // 2]
    ),
}


@pytest.mark.parametrize("lie", sorted(LIES))
async def test_a_lying_archive_loses_its_session_and_no_token_is_made_of_it(
    made: Any, lie: str
) -> None:
    fetching, store, _there, _kept = await made(evicted_stores.small_shape(), 300)
    _caller, served = fetching.ends[0]
    served.spoil = lambda tensor: LIES[lie](tensor) if tensor.name == "kv.2" else tensor
    with pytest.raises(RestorerLost):
        await fetching.in_thread(forward, evicted_stores, store, 300, 4)
    with pytest.raises(RestorerLost):
        await fetching.in_thread(forward, evicted_stores, store, 300, 4)


async def test_an_archive_that_floods_fills_no_memory(made: Any) -> None:
    fetching, store, _there, _kept = await made(evicted_stores.small_shape(), 300)
    caller, served = fetching.ends[0]
    flood = reads_to_wire([KvRead(0, 3, 5)] * 1000)
    sent = 0
    while not caller.closed:
        await served.send(flood)
        sent += len(flood.data)
        await asyncio.sleep(0)
        assert sent < 1 << 20
    with pytest.raises(RestorerLost, match=r"more than it was asked for|not asked for|were due"):
        await fetching.in_thread(forward, evicted_stores, store, 300, 4)


async def test_a_fork_reads_from_its_own_archive(made: Any) -> None:
    fetching, store, there, _kept = await made(evicted_stores.small_shape(), 300)
    fork = await fetching.in_thread(store.fork, 280)
    more = evicted_stores.random_evicted(evicted_stores.small_shape(), 30, seed=8)
    await fetching.in_thread(fork.deposit, 280, more)
    own = there.fork(280)
    own.deposit(280, more)
    expected = forward(evicted_stores, there, 300, 4)
    assert await fetching.in_thread(forward, evicted_stores, store, 300, 4) == expected
    await fetching.in_thread(store.release)
    expected = forward(evicted_stores, own, 310, 4)
    assert await fetching.in_thread(forward, evicted_stores, fork, 310, 4) == expected
    await fetching.in_thread(fork.release)
    assert fetching.stores.used_bytes == 0


async def test_only_an_archive_in_use_can_be_read(made: Any) -> None:
    fetching, _store, _there, kept = await made(evicted_stores.small_shape(), 0)
    waiting = fetching.archives.open(kept.archive.opening)
    for archive_id in ("", "nobody", waiting.archive_id):
        with pytest.raises(ArchiveNotFound):
            fetching.reads.check(wire.OpenLinkRequest(archive_id=archive_id))
    fetching.reads.check(wire.OpenLinkRequest(archive_id=kept.archive.archive_id))


@pytest.mark.parametrize(
    "read",
    [
        KvRead(1, 3, 10),
        KvRead(0, 2, 10),
        KvRead(0, 10, 10),
        KvRead(0, 3, 3 + 8193),
        KvRead(0, 11, 5),
        KvRead(1 << 63, 3, 5),
        KvRead(0, 1 << 63, (1 << 63) + 1),
    ],
)
async def test_a_read_that_cannot_be_ends_the_link_with_words(made: Any, read: KvRead) -> None:
    fetching, _store, _there, _kept = await made(
        evicted_stores.small_shape(), 300, deposit_seconds=0.05
    )
    caller, served = fetching.ends[0]
    await caller.send(reads_to_wire([read]))
    await asyncio.wait(fetching.tasks[:1], timeout=SECONDS)
    assert served.closed
    assert served.sent[-1].name == "refused"
    assert refusal_from_wire(served.sent[-1])
