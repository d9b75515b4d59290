"""Attention here to what is kept elsewhere: the bits of attention where it is kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, pairwise, repeat
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.group_store import torch_pool
from kakeya_fleet.engine.backends.torch_backend.masks import chunks
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS, contiguous_placement
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from tests.support import evicted_stores, fetched_sources

SHAPES = {
    # Heads of keys, query heads of each, values of a head; a layer has one shape.
    "two": ((2, 2, 8), (1, 3, 4)),
    "grouped": ((1, 8, 16),),
    "many": ((4, 1, 8), (2, 5, 24)),
}


def shape_of(name: str, dtype: str, window: int = 13, positions: int = 1 << 15) -> EvictedShape:
    groups = tuple(
        LayerGroup((index, index + len(SHAPES[name])), AttentionLayer(*sizes))
        for index, sizes in enumerate(SHAPES[name])
    )
    return EvictedShape(groups, dtype, sink=3, window=window, context_length=positions)


def bits(partial) -> bytes:
    return b"".join(
        np.ascontiguousarray(part).tobytes()
        for part in (partial.output, partial.total, partial.maximum)
    )


def asked(store, queries: EvictedQueries):
    store.begin(queries)
    return store.finish()


def both(evicted_stores: ModuleType, stores, shape: EvictedShape, end: int):
    """A fetched store, and one that attends where it keeps, of the same positions."""
    evicted = evicted_stores.random_evicted(shape, end - shape.sink, seed=1)
    made = stores.make(shape), TorchEvictedStore(shape, stores.make(shape).spec, torch_pool())
    for store in made:
        store.deposit(shape.sink, evicted)
    return made


@pytest.mark.parametrize(
    ("dtype", "end"),
    [
        *(("float32", end) for end in (4, 255, 256, 700, 2048, 3500, 8193, 17_000)),
        # Where positions lie does not depend on how wide their numbers are.
        *(("bfloat16", end) for end in (256, 700, 8193)),
    ],
)
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_bits_are_those_of_attention_where_it_is_kept(dtype: str, name: str, end: int) -> None:
    """Past segments of both sizes and into the third chunk, for blocks of every number of products.

    Pieces end anywhere: a part of a segment must not be attended to before the rest is there.
    """
    shape = shape_of(name, dtype)
    stores = fetched_sources.FetchedStores(sizes=lambda: cycle([256, 1, 1023, 5000, 77]))
    fetched, there = both(evicted_stores, stores, shape, end)
    latest = end + shape.window
    for layer in sorted(shape.group_of):
        # The last block begins where its first queries see nothing yet while `end` is small.
        for count, last in ((1, latest), (5, latest), (16, latest - 1), (40, latest)):
            first = max(0, last - count)
            queries = evicted_stores.random_queries(shape, layer, first, last - first, seed=layer)
            assert bits(asked(fetched, queries)) == bits(asked(there, queries)), (layer, count)


@settings(deadline=None, max_examples=15)
@given(
    end=st.integers(4, 9000),
    sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=8),
    back=st.integers(0, 200),
    count=st.integers(1, 70),
    layers=st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=4),
    window=st.integers(1, 40),
)
def test_neither_pieces_nor_blocks_nor_the_order_of_layers_are_felt(
    end: int, sizes: list[int], back: int, count: int, layers: list[int], window: int
) -> None:
    shape = shape_of("two", "float32", window)
    stores = fetched_sources.FetchedStores(sizes=lambda: cycle(sizes))
    fetched, there = both(evicted_stores, stores, shape, end)
    last = max(1, end + window - back)
    questions = [
        evicted_stores.random_queries(shape, layer, max(0, last - count), min(count, last), seed=at)
        for at, layer in enumerate(layers)
    ]
    # All are under way together, then each alone.
    for queries in questions:
        fetched.begin(queries)
    found = [bits(fetched.finish()) for _ in questions]
    assert found == [bits(asked(there, queries)) for queries in questions]
    assert found == [bits(asked(fetched, queries)) for queries in questions]


def forward(evicted_stores: ModuleType, store, shape: EvictedShape, first: int, count: int):
    """What a forward asks of a store, layer by layer."""
    for layer in sorted(shape.group_of):
        queries = evicted_stores.random_queries(shape, layer, first, count, seed=layer)
        yield layer, asked(store, queries)


def test_each_position_of_each_layer_travels_once_a_forward_and_the_next_layer_ahead() -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores()
    fetched = stores.make(shape)
    end = 2 * CHUNK_KEYS + 10
    fetched.deposit(3, evicted_stores.random_evicted(shape, end - 3, seed=1))
    (source,) = stores.sources
    borders = [3, CHUNK_KEYS, 2 * CHUNK_KEYS, end]
    expected = []
    for layer, _found in forward(evicted_stores, fetched, shape, end + shape.window - 4, 4):
        expected += [(layer, *pair) for pair in pairwise(borders)]
        assert source.requests[: len(expected)] == expected
        # The next layer's first chunk is on its way before anybody asks for it.
        ahead = source.requests[len(expected) :]
        assert bool(ahead) is (layer < 3)
        assert sorted(ahead) == ahead
    assert source.requests == expected


def test_short_histories_of_all_layers_are_requested_at_once() -> None:
    """A forward then waits for one round trip, not for one a layer."""
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores()
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 500, seed=1))
    fetched.begin(evicted_stores.random_queries(shape, 0, 500, 1, seed=0))
    assert [layer for layer, _first, _end in stores.sources[0].requests] == [0, 1, 2, 3]


def test_what_is_in_memory_does_not_grow_with_the_history() -> None:
    peaks = []
    for end in (CHUNK_KEYS, 3 * CHUNK_KEYS):
        shape = shape_of("grouped", "float32")
        stores = fetched_sources.FetchedStores(sizes=lambda: repeat(1024))
        fetched = stores.make(shape)
        fetched.deposit(3, evicted_stores.random_evicted(shape, end - 3, seed=1))
        (source,), (attention,) = stores.sources, stores.attentions
        chunk = CHUNK_KEYS * shape.bytes_per_position // 2
        tracemalloc.start()
        held = []
        for _layer, _found in forward(evicted_stores, fetched, shape, end, 4):
            held.append(attention.memory_bytes)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert source.most_bytes <= 2 * chunk
        assert 0 < held[0] <= 2 * chunk
        # Nothing stays once the last layer has its answer.
        assert held[-1] == 0
    # What numpy holds: a chunk that came.
    assert peaks[1] < peaks[0] + (CHUNK_KEYS * shape.bytes_per_position) // 4


def test_an_abandoned_forward_leaves_nothing_that_the_next_one_takes_for_its_own() -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores(sizes=lambda: repeat(300))
    fetched, there = both(evicted_stores, stores, shape, CHUNK_KEYS + 500)
    first = CHUNK_KEYS + 400
    for ended in range(4):
        for layer in range(ended):
            asked(fetched, evicted_stores.random_queries(shape, layer, first, 4, seed=layer))
        fetched.begin(evicted_stores.random_queries(shape, ended, first, 4, seed=9))
        fetched.abandon()
        with pytest.raises(ValueError, match="begun"):
            fetched.finish()
        found = list(forward(evicted_stores, fetched, shape, first - 100, 3))
        expected = list(forward(evicted_stores, there, shape, first - 100, 3))
        assert [bits(one) for _, one in found] == [bits(one) for _, one in expected]


@pytest.mark.parametrize("how", ["abandoned", "another layer"])
def test_what_nobody_wants_any_more_is_not_requested(how: str) -> None:
    shape = shape_of("grouped", "float32")
    stores = fetched_sources.FetchedStores()
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 3 * CHUNK_KEYS, seed=1))
    (source,) = stores.sources
    question = evicted_stores.random_queries(shape, 1, 3 * CHUNK_KEYS, 1, seed=1)
    if how == "abandoned":
        fetched.begin(evicted_stores.random_queries(shape, 0, 3 * CHUNK_KEYS, 1, seed=0))
        fetched.abandon()
    else:
        asked(fetched, evicted_stores.random_queries(shape, 0, 3 * CHUNK_KEYS, 1, seed=0))
        # The second layer is on its way, and the first is asked again.
        question = evicted_stores.random_queries(shape, 0, 3 * CHUNK_KEYS, 1, seed=1)
    before = list(source.requests)
    assert len(before) == (2 if how == "abandoned" else 3 + 2)
    asked(fetched, question)
    later = [layer for layer, _first, _end in source.requests[len(before) :]]
    assert later[:3] == [question.layer] * 3
    assert source.taken == len(before) + 3


@pytest.mark.parametrize("moment", range(7))
def test_a_source_that_ends_loses_the_store_for_good(moment: int) -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores(sizes=lambda: repeat(CHUNK_KEYS // 2))
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, CHUNK_KEYS, seed=1))
    (source,) = stores.sources
    source.lost_after = moment
    with pytest.raises(RestorerLost, match="the road ended"):
        list(forward(evicted_stores, fetched, shape, CHUNK_KEYS, 4))
    assert source.taken == moment
    assert source.closed
    fetched.abandon()
    question = evicted_stores.random_queries(shape, 0, 100, 1, seed=0)
    for call in (
        lambda: fetched.begin(question),
        fetched.finish,
        lambda: fetched.deposit(fetched.length, evicted_stores.random_evicted(shape, 1, seed=1)),
        lambda: fetched.fork(10),
    ):
        with pytest.raises(RestorerLost):
            call()
    fetched.release()
    assert stores.pool.used_bytes == 0


SPOILED = {
    "not finite": lambda first, numbers: (first, numbers * np.float32(np.inf)),
    "one not a number": lambda first, numbers: (first, _with_nan(numbers)),
    "another position": lambda first, numbers: (first + 1, numbers),
    "too many": lambda first, numbers: (first, np.concatenate([numbers, numbers], axis=2)),
    "none": lambda first, numbers: (first, numbers[:, :, :0]),
    "another layer's": lambda first, numbers: (first, numbers[..., :3]),
    "another format": lambda first, numbers: (first, numbers.view(np.uint16)[..., ::2]),
    "flat": lambda first, numbers: (first, numbers.reshape(-1)),
}


def _with_nan(numbers):
    numbers[1, 0, -1, -1] = np.nan
    return numbers


@pytest.mark.parametrize("spoiled", sorted(SPOILED))
def test_what_was_not_asked_for_is_never_attended_to(spoiled: str) -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores()
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 300, seed=1))
    stores.sources[0].spoil = SPOILED[spoiled]
    with pytest.raises(RestorerLost, match="came back wrong"):
        asked(fetched, evicted_stores.random_queries(shape, 0, 300, 4, seed=0))
    with pytest.raises(RestorerLost, match="out of reach"):
        fetched.begin(evicted_stores.random_queries(shape, 0, 300, 4, seed=0))


def test_what_is_refused_before_it_is_sent_loses_nothing() -> None:
    shape = shape_of("two", "float32")
    fetched = fetched_sources.FetchedStores().make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 50, seed=1))
    question = evicted_stores.random_queries(shape, 0, 60, 4, seed=0)
    fetched.begin(question)
    infinite = evicted_stores.random_evicted(shape, 1, seed=1)
    infinite.groups[0][0, 0, 0, 0, 0] = np.inf
    with pytest.raises(RestorerRefused):
        fetched.deposit(53, infinite)
    with pytest.raises(RestorerRefused):
        fetched.begin(EvictedQueries(99, 60, 1.0, question.queries))
    assert fetched.finish().total.all()


def test_a_fork_reads_over_a_source_of_its_own() -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores()
    fetched, there = both(evicted_stores, stores, shape, 600)
    fork = fetched.fork(400)
    source, spare, own = stores.sources
    assert own.kept.length == 400
    question = evicted_stores.random_queries(shape, 1, 400, 9, seed=0)
    assert bits(asked(fork, question)) == bits(asked(there, question))
    assert not source.requests
    fetched.release()
    assert source.closed
    assert not own.closed
    assert bits(asked(fork, question)) == bits(asked(there, question))
    fork.release()
    spare.kept.release()
    assert stores.pool.used_bytes == 0


def test_a_source_that_does_not_open_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shape_of("two", "float32")
    stores = fetched_sources.FetchedStores()
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 600, seed=1))
    used = stores.pool.used_bytes

    def refused(_source, *_args) -> None:
        raise RestorerLost("no link")

    monkeypatch.setattr(fetched_sources.StoreSource, "__init__", refused)
    with pytest.raises(RestorerLost, match="no link"):
        fetched.fork(300)
    assert stores.pool.used_bytes == used
    # The store itself has lost nothing.
    assert asked(fetched, evicted_stores.random_queries(shape, 1, 400, 9, seed=0)).total.all()


def test_a_fork_without_room_takes_nothing() -> None:
    shape = shape_of("two", "float32")
    segment = 256 * shape.bytes_per_position
    stores = fetched_sources.FetchedStores(torch_pool(segment))
    fetched = stores.make(shape)
    fetched.deposit(3, evicted_stores.random_evicted(shape, 100, seed=1))
    with pytest.raises(OutOfKvMemory):
        fetched.fork(50)
    assert stores.pool.used_bytes == segment
    assert asked(fetched, evicted_stores.random_queries(shape, 1, 90, 9, seed=0)).total.all()


def test_chunks_end_at_multiples_of_their_keys() -> None:
    """What is requested as one is attended to as one."""
    segments = contiguous_placement(3 * CHUNK_KEYS).segments
    ends = [sum(segments[: chunk[-1].last]) for chunk in chunks(segments)]
    assert ends == [CHUNK_KEYS, 2 * CHUNK_KEYS, 3 * CHUNK_KEYS]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_positions_are_read_while_others_are_deposited(dtype: str) -> None:
    """By another thread: also where a segment was shared with a fork and is copied meanwhile."""
    shape = shape_of("two", dtype)
    store = TorchEvictedStore(shape, evicted_stores.ARCHIVE, torch_pool())
    whole = evicted_stores.random_evicted(shape, 4000, seed=1)
    store.deposit(3, evicted_stores.part(whole, 0, 200))
    expected = [group[:, :, :, :200].tobytes() for group in whole.groups]

    def read() -> Iterator[bytes]:
        for group in shape.groups:
            layers = [store.read(layer, 3, 203) for layer in group.layers]
            yield np.stack(layers).tobytes()

    def reading() -> bool:
        return all(list(read()) == expected for _ in range(150))

    with ThreadPoolExecutor(1) as thread:
        outcome = thread.submit(reading)
        for first in range(200, 4000, 20):
            fork = store.fork(store.length)
            store.deposit(3 + first, evicted_stores.part(whole, first, first + 20))
            fork.release()
        assert outcome.result()
    with pytest.raises(ValueError, match="not among"):
        store.read(0, 3, 4004)
    with pytest.raises(ValueError, match="not among"):
        store.read(0, 2, 10)
    with pytest.raises(RestorerRefused):
        store.read(9, 3, 10)
    store.release()
    with pytest.raises(RestorerLost):
        store.read(0, 3, 10)
