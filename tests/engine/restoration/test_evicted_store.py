"""The torch store of evicted keys and values, against a naive one in numpy."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import groupby
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool
from kakeya_fleet.engine.restoration.segment_store import SegmentStore
from tests.support import evicted_stores

LAYERS = (0, 2, 3)


@pytest.fixture(params=["float32", "bfloat16"])
def shape(request: pytest.FixtureRequest) -> EvictedShape:
    made: EvictedShape = evicted_stores.small_shape(request.param)
    return made


def new(
    evicted_stores: ModuleType, shape: EvictedShape, budget: int | None = None
) -> TorchEvictedStore:
    return TorchEvictedStore(shape, evicted_stores.ARCHIVE, kv_pool(budget))


def filled(
    evicted_stores: ModuleType, shape: EvictedShape, end: int, cut: int = 1 << 20
) -> EvictedStore:
    """A store of the positions below `end`, deposited `cut` at a time."""
    store = new(evicted_stores, shape)
    evicted = evicted_stores.random_evicted(shape, end - shape.sink, seed=1)
    for first in range(0, end - shape.sink, cut):
        last = min(end - shape.sink, first + cut)
        store.deposit(shape.sink + first, evicted_stores.part(evicted, first, last))
    return store


def asked(store: EvictedStore, queries: EvictedQueries) -> PartialAttention:
    store.begin(queries)
    return store.finish()


def bits(partial: PartialAttention) -> bytes:
    return partial.output.tobytes() + partial.total.tobytes() + partial.maximum.tobytes()


def test_later_deposits_are_not_seen_by_earlier_queries(shape: EvictedShape) -> None:
    store = filled(evicted_stores, shape, 250)
    queries = evicted_stores.random_queries(shape, 2, 240, 9, seed=0)
    before = bits(asked(store, queries))
    # It grows by segments, into the coarse ones and another chunk.
    for count in (1, 300, 2_000, 1_400):
        more = evicted_stores.random_evicted(shape, count, seed=count)
        store.deposit(store.length, more)
        assert bits(asked(store, queries)) == before


def test_a_full_store_keeps_what_it_has(shape: EvictedShape) -> None:
    segment = 256 * shape.bytes_per_position
    # The second segment of the first group fits, that of the second does not.
    store = new(evicted_stores, shape, 2 * segment - 1)
    evicted = evicted_stores.random_evicted(shape, 300, seed=1)
    store.deposit(shape.sink, evicted_stores.part(evicted, 0, 253))
    question = evicted_stores.random_queries(shape, 3, 250, 9, seed=0)
    before = bits(asked(store, question))
    for _ in range(2):
        with pytest.raises(OutOfKvMemory):
            store.deposit(256, evicted_stores.part(evicted, 253, 254))
        assert (store.length, store.stored_bytes) == (256, segment)
        assert bits(asked(store, question)) == before


def test_a_store_that_is_refused_takes_nothing_meanwhile(
    shape: EvictedShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took until it met the end of the budget, a neighbour would lack."""
    segment = 256 * shape.bytes_per_position
    store = new(evicted_stores, shape, 3 * segment)
    taken: list[int] = []
    take = SlabPool.take

    def watched(pool: SlabPool[Any], kind: Hashable, nbytes: int, *rest: Any) -> Slab[Any]:
        taken.append(nbytes)
        return take(pool, kind, nbytes, *rest)

    monkeypatch.setattr(SlabPool, "take", watched)
    store.reserve(300)
    assert sum(taken) == 2 * segment
    with pytest.raises(OutOfKvMemory) as caught:
        store.reserve(1024)
    assert sum(taken) == 2 * segment
    # All that it lacks is named: who makes room makes enough.
    assert caught.value.metadata["needed_bytes"] == str(2 * segment)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deposit", "fork", "release"]),
        st.integers(0, 1 << 16),
        st.integers(1, 300),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=25)
@given(steps=STEPS)
def test_forks_share_memory_and_nothing_else(steps: list[tuple[str, int, int]]) -> None:
    """Each store of a family is at any time as one that was filled alone."""
    shape = evicted_stores.small_shape()
    pool = kv_pool()
    stores: list[SegmentStore[Tensor]] = [TorchEvictedStore(shape, evicted_stores.ARCHIVE, pool)]
    texts: list[list[tuple[int, int, int]]] = [[]]
    for step, (action, number, count) in enumerate(steps):
        at = number % len(stores)
        store, text = stores[at], texts[at]
        if action == "deposit":
            evicted = evicted_stores.random_evicted(shape, count, seed=step)
            store.deposit(max(store.length, shape.sink), evicted)
            text += [(step, count, index) for index in range(count)]
        elif action == "fork":
            length = number % (store.length + 2)
            stores.append(store.fork(length))
            texts.append(text[: max(0, min(length, store.length) - shape.sink)])
        elif len(stores) > 1:
            stores.pop(at).release()
            texts.pop(at)
    for store, text in zip(stores, texts, strict=True):
        assert store.length == (len(text) + shape.sink if text else 0)
        if text:
            queries = evicted_stores.random_queries(
                shape, 2, store.length + shape.window - 3, 3, seed=0
            )
            assert bits(asked(store, queries)) == bits(
                asked(alone(evicted_stores, shape, text), queries)
            )
    for store in stores:
        store.release()
    assert (pool.held_bytes, pool.reserved_bytes) == (0, 0)


def alone(
    evicted_stores: ModuleType, shape: EvictedShape, text: list[tuple[int, int, int]]
) -> TorchEvictedStore:
    """A store of the positions that `text` names: a deposit's seed, its count, and which of it."""
    store = new(evicted_stores, shape)
    for (seed, count), named in groupby(text, key=lambda name: name[:2]):
        whole = evicted_stores.random_evicted(shape, count, seed)
        # What was cut off by a fork is missing at the end.
        kept = len(list(named))
        store.deposit(max(store.length, shape.sink), evicted_stores.part(whole, 0, kept))
    return store
