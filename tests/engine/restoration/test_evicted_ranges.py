"""Stores that share a session by ranges of positions find what one store finds, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries, PartialAttention
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerRefused
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.engine.restoration.segment_store import SegmentStore
from tests.support import evicted_stores
from tests.support.breadth import all_wide_but

CHUNK = 1024
END = 3 * CHUNK + 700
SHARES = [(2 * CHUNK,), (CHUNK, 3 * CHUNK), (CHUNK, 2 * CHUNK, 3 * CHUNK)]


FORMATS = ["float32", "bfloat16"]


@pytest.fixture(params=FORMATS)
def shape(request: pytest.FixtureRequest) -> EvictedShape:
    made: EvictedShape = evicted_stores.small_shape(request.param)
    return made


def shared(
    naive: ModuleType,
    shape: EvictedShape,
    borders: tuple[int, ...],
    end: int,
    *,
    chunk: int = CHUNK,
    pool: SlabPool[Any] | None = None,
) -> list[TorchEvictedStore]:
    """Stores of the ranges between `borders`, with the same numbers whatever the borders."""
    evicted = naive.random_evicted(shape, end - shape.sink, seed=1)
    stores = []
    ends = (*borders, end)
    for origin, last in zip((0, *borders), ends, strict=True):
        store = TorchEvictedStore(
            shape, naive.ARCHIVE, pool or kv_pool(), origin=origin, chunk_keys=chunk
        )
        for first in range(max(origin, shape.sink), last, 500):
            until = min(first + 500, last)
            store.deposit(first, naive.part(evicted, first - shape.sink, until - shape.sink))
        if last != end:
            store.complete()
        stores.append(store)
    return stores


def asked(stores: Sequence[SegmentStore[Tensor]], queries: EvictedQueries) -> PartialAttention:
    for store in stores:
        store.begin(queries)
    found = stores[0].finish()
    for store in stores[1:]:
        found = store.finish(found)
    return found


def bits(found: PartialAttention) -> bytes:
    return found.output.tobytes() + found.total.tobytes() + found.maximum.tobytes()


@pytest.mark.parametrize("shape", all_wide_but(["float32"], FORMATS), indirect=True)
def test_several_find_the_bits_of_one(shape: EvictedShape) -> None:
    one = shared(evicted_stores, shape, (), END)
    for borders in SHARES:
        several = shared(evicted_stores, shape, borders, END)
        # Across each border, where some queries see nothing yet, and at the end.
        firsts = [END - 10, *(border + shape.window - 7 for border in borders), 5]
        for layer, first, count in itertools.product((2, 3), firsts, (1, 40)):
            fits = min(count, END + shape.window - first)
            queries = evicted_stores.random_queries(shape, layer, first, fits, seed=first)
            assert bits(asked(several, queries)) == bits(asked(one, queries)), (borders, first)


def test_what_is_carried_matters_and_its_order_too(shape: EvictedShape) -> None:
    """Else the test above could not fail."""
    stores = shared(evicted_stores, shape, (CHUNK, 2 * CHUNK), END)
    queries = evicted_stores.random_queries(shape, 2, END, 4, seed=3)
    expected = bits(asked(stores, queries))
    for store in stores:
        store.begin(queries)
    first = stores[0].finish()
    third = stores[2].finish(first)
    assert bits(third) != expected
    assert bits(stores[1].finish(third)) != expected
    stores[1].begin(queries)
    assert bits(stores[1].finish()) != bits(first)


def test_the_real_chunk_is_that_of_full_attention() -> None:
    shape = replace(evicted_stores.small_shape(), context_length=40_000)
    end = 3 * CHUNK_KEYS + 40
    one = shared(evicted_stores, shape, (), end, chunk=CHUNK_KEYS)
    queries = evicted_stores.random_queries(shape, 0, end, 5, seed=0)
    expected = bits(asked(one, queries))
    for borders in ((CHUNK_KEYS,), (CHUNK_KEYS, 3 * CHUNK_KEYS)):
        several = shared(evicted_stores, shape, borders, end, chunk=CHUNK_KEYS)
        assert bits(asked(several, queries)) == expected


def test_ranges_begin_and_end_between_chunks(shape: EvictedShape) -> None:
    for origin in (1, CHUNK - 256, CHUNK + 1, -CHUNK, 1 << 20):
        with pytest.raises(RestorerRefused):
            TorchEvictedStore(
                shape, evicted_stores.ARCHIVE, kv_pool(), origin=origin, chunk_keys=CHUNK
            )
    (store,) = shared(evicted_stores, shape, (), CHUNK - 1)
    with pytest.raises(ValueError, match="between two chunks"):
        store.complete()
    late = evicted_stores.random_queries(shape, 0, CHUNK + shape.window, 1, seed=0)
    with pytest.raises(ValueError, match="see positions"):
        store.begin(late)
    store.deposit(CHUNK - 1, evicted_stores.random_evicted(shape, 1, seed=9))
    store.complete()
    store.complete()
    with pytest.raises(ValueError, match="complete"):
        store.deposit(CHUNK, evicted_stores.random_evicted(shape, 1, seed=9))
    store.begin(late)
    assert store.finish().total.all()
    with pytest.raises(ValueError, match="carried"):
        asked([store, store], late)


def test_a_carry_of_other_queries_is_refused(shape: EvictedShape) -> None:
    first, second = shared(evicted_stores, shape, (CHUNK,), END)
    queries = evicted_stores.random_queries(shape, 0, END, 4, seed=0)
    first.begin(queries)
    carry = first.finish()
    for wrong in (
        replace(carry, output=carry.output[:, :3]),
        replace(carry, total=carry.total[:1]),
        replace(carry, maximum=np.repeat(carry.maximum, 2, axis=2)),
    ):
        second.begin(queries)
        with pytest.raises(ValueError, match="carry"):
            second.finish(wrong)


def test_reserved_memory_is_there_when_it_is_needed(shape: EvictedShape) -> None:
    chunk_bytes = CHUNK * shape.bytes_per_position
    pool = kv_pool(2 * chunk_bytes)
    (store,) = shared(evicted_stores, shape, (), CHUNK - 10, pool=pool)
    store.reserve(2 * CHUNK)
    assert pool.used_bytes == store.stored_bytes == 2 * chunk_bytes
    with pytest.raises(OutOfKvMemory):
        store.reserve(2 * CHUNK + 1)
    other = TorchEvictedStore(shape, evicted_stores.ARCHIVE, pool)
    with pytest.raises(OutOfKvMemory):
        other.deposit(shape.sink, evicted_stores.random_evicted(shape, 1, seed=0))
    store.deposit(CHUNK - 10, evicted_stores.random_evicted(shape, CHUNK + 10, seed=0))
    for end in (shape.context_length + 1, 0):
        with pytest.raises(RestorerRefused):
            store.reserve(end)
    store.complete()
    store.release()
    assert pool.used_bytes == 0


def test_what_was_reserved_in_vain_comes_back_with_the_end(shape: EvictedShape) -> None:
    pool = kv_pool()
    (store,) = shared(evicted_stores, shape, (), CHUNK, pool=pool)
    store.reserve(3 * CHUNK)
    store.complete()
    assert pool.used_bytes == CHUNK * shape.bytes_per_position


@pytest.mark.parametrize("length", [2 * CHUNK, 2 * CHUNK - 5])
def test_forks_of_ranges_are_ranges(shape: EvictedShape, length: int) -> None:
    pool = kv_pool()
    borders = (CHUNK, 2 * CHUNK)
    stores = shared(evicted_stores, shape, borders, END, pool=pool)
    forks = [store.fork(length) for store in stores]
    assert [fork.origin for fork in forks] == [0, *borders]
    kept = [fork for fork in forks if fork.length]
    alone = shared(evicted_stores, shape, (), END)[0].fork(length)
    queries = evicted_stores.random_queries(shape, 3, length + shape.window - 4, 4, seed=5)
    # What a fork at a border has complete takes no more; another does.
    open_ones = [fork for fork in kept if fork.length % CHUNK]
    for fork in open_ones:
        more = evicted_stores.random_evicted(shape, 1, seed=2)
        fork.deposit(fork.length, more)
        alone.deposit(alone.length, more)
    assert bits(asked(kept, queries)) == bits(asked([alone], queries))
    for store in (*stores, *forks):
        store.release()
    assert (pool.held_bytes, pool.reserved_bytes) == (0, 0)


def test_one_question_does_not_fill_the_memory(
    shape: EvictedShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = shared(evicted_stores, shape, (CHUNK,), END)
    queries = evicted_stores.random_queries(shape, 0, END, 2, seed=0)
    # What waits for a carry: one answer a chunk.
    monkeypatch.setattr(
        "kakeya_fleet.engine.restoration.segment_store.MOST_CARRIED_BYTES",
        3 * queries.queries.nbytes - 1,
    )
    first.begin(queries)
    with pytest.raises(RestorerRefused, match="too many"):
        later.begin(queries)
