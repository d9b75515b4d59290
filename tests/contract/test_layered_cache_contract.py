"""What every cache of every back end does below the model, one layer's keys at a time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.backends import BACKENDS, installed_backends
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, KvLayout, SharedLayer
from kakeya_fleet.engine.contracts.positions import attends
from kakeya_fleet.engine.errors import ContextExceeded, OutOfKvMemory
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.memory.slab_pool import SlabPool

Cache = SlabCache[Any, Any]

CONTEXT = 4096
LAYER = AttentionLayer(kv_heads=2, groups=2, head_dim=8)
LAYOUT = KvLayout((LAYER, LAYER, LAYER), CONTEXT, item_bytes=4)
# Layers of different shapes, one that looks 24 positions back and one without keys of its own.
MIXED = KvLayout(
    (
        LAYER,
        AttentionLayer(kv_heads=1, groups=4, head_dim=16, sliding_window=24),
        AttentionLayer(kv_heads=2, groups=2, head_dim=8),
        SharedLayer(0),
    ),
    CONTEXT,
    item_bytes=4,
)
KINDS = {
    "contiguous": CacheSpec(CacheKind.CONTIGUOUS, capacity=300),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    "several segments": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=500),
}


@pytest.fixture(params=sorted(BACKENDS))
def back_end(request: pytest.FixtureRequest) -> str:
    if request.param not in installed_backends():
        pytest.skip(f"the libraries of the back end {request.param} are not installed")
    return str(request.param)


@pytest.fixture(params=sorted(KINDS))
def spec(request: pytest.FixtureRequest) -> CacheSpec:
    return KINDS[request.param]


@pytest.fixture
def make(back_end: str) -> Callable[..., Cache]:
    kernels = BACKENDS[back_end].kernels()

    def new(
        spec: CacheSpec,
        layout: KvLayout = LAYOUT,
        dtype: str = "float32",
        pool: SlabPool[Any] | None = None,
    ) -> Cache:
        own_pool = pool if pool is not None else kv_pool()
        return SlabCache.allocate(layout, spec, kernels(dtype), own_pool, dict)

    return new


@pytest.fixture
def array(back_end: str) -> Callable[[np.ndarray], Any]:
    library, name = {"torch": ("torch", "from_numpy"), "mlx": ("mlx.core", "array")}[back_end]
    made: Callable[[np.ndarray], Any] = getattr(importlib.import_module(library), name)
    return made


def marked(layer: int, positions: range, heads: int = 2, size: int = 8) -> np.ndarray:
    """Keys [heads, n, size] that tell their layer, position and head."""
    base = np.array(positions, np.float32)[None, :, None] + 10_000 * (layer + 1)
    told = base + 0.25 * np.arange(heads, dtype=np.float32)[:, None, None]
    return np.repeat(told.astype(np.float32), size, axis=2)


def put(cache: Cache, array: Callable[..., Any], layer: int, keys: np.ndarray) -> np.ndarray:
    """Writes one layer's `keys` and their opposites as values; what `visible` is then."""
    count = keys.shape[1]
    cache.check_room(count)
    cache.write(layer, cache.prepare(count), array(keys), array(-keys))
    cache.kernels.settle(cache.arrays)
    return visible(cache, layer, count)


def visible(cache: Cache, layer: int, count: int) -> np.ndarray:
    """Keys and values [2, heads, n, size] that any of the next `count` queries attends to."""
    store, index = cache._stores.place(layer)
    masks = cache.masks(store.group, 0, count, count)
    assert len(cache.read(layer, {store.group: masks}).keys) == len(masks.biases)
    found = []
    for slab, bias in zip(store.slabs, masks.biases, strict=False):
        slots = slab.payload.arrays[0].shape[-2]
        numbers = slab.payload.read_layer(index, 0, slots)
        seen_by_any = slice(None) if bias is None else np.isfinite(np.from_dlpack(bias)).any(axis=0)
        found.append(numbers[:, :, seen_by_any])
    return np.concatenate(found, axis=2)


def write(cache: Cache, array: Callable[..., Any], layer: int, count: int) -> np.ndarray:
    positions = range(cache.length, cache.length + count)
    return put(cache, array, layer, marked(layer, positions))


def told(keys: np.ndarray, layer: int) -> list[int]:
    """The positions that `marked` keys [heads, n, size] tell."""
    return [int(number) - 10_000 * (layer + 1) for number in keys[0, :, 0]]


def check(found: np.ndarray, layer: int, expected: set[int]) -> None:
    """What was found are the keys and values of `expected` positions, and each says whose it is."""
    positions = told(found[0], layer)
    wanted = np.concatenate([marked(layer, range(p, p + 1)) for p in positions], axis=1)
    assert np.array_equal(found[0], wanted)
    assert np.array_equal(found[1], -wanted)
    assert sorted(positions) == sorted(expected)


def seen(spec: CacheSpec, start: int, end: int) -> set[int]:
    """Positions that any query from `start` to `end` attends to."""
    if spec.kind is CacheKind.CONTIGUOUS:
        return set(range(end))
    return {
        key
        for key in range(end)
        if any(attends(query, key, spec.sink, spec.window) for query in range(start, end))
    }


def test_a_new_cache_has_all_its_bytes_and_bfloat16_takes_half(
    make: Callable[..., Cache], spec: CacheSpec
) -> None:
    assert make(spec).memory_bytes == LAYOUT.bytes_needed(spec) == make(spec).freed_bytes
    half = KvLayout(LAYOUT.layers, CONTEXT, item_bytes=2)
    assert make(spec, half, dtype="bfloat16").memory_bytes * 2 == make(spec).memory_bytes


def test_updates_give_back_what_a_query_may_see_and_nothing_else(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    for counts in ((1,) * 40, (16, 16, 1, 16, 7, 16, 16), (13, 16, 2, 16, 16)):
        cache = make(spec)
        for count in counts:
            start = cache.length
            for layer in range(3):
                found = write(cache, array, layer, count)
                check(found, layer, seen(spec, start, start + count))
                assert cache.length == start
            cache.advance(count)
            assert cache.length == start + count


def test_layers_keep_to_themselves(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec)
    write(cache, array, 0, 4)
    write(cache, array, 2, 4)
    cache.advance(4)
    middle = write(cache, array, 1, 1)
    assert not middle[:, :, :4].any(), "another layer's keys"
    check(write(cache, array, 0, 1), 0, set(range(5)))
    check(write(cache, array, 2, 1), 2, set(range(5)))


def test_what_has_no_keys_of_its_own_is_refused(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec, MIXED)
    for layer in (3, 4):
        with pytest.raises(ValueError, match=f"layer {layer}"):
            put(cache, array, layer, np.zeros((2, 1, 8), np.float32))


def test_a_sliding_layer_sees_its_own_window_only(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec, MIXED)
    assert cache.memory_bytes == MIXED.bytes_needed(spec)
    for _ in range(9):
        start = cache.length
        for layer in (0, 2):
            write(cache, array, layer, 7)
        positions = range(start, start + 7)
        keys = marked(1, positions, 1, 16)
        found = set(told(put(cache, array, 1, keys)[0], 1))
        wanted = {key for key in seen(spec, start, start + 7) if key > start - 24}
        if spec.kind is CacheKind.SINK_WINDOW:
            wanted = {
                key
                for key in range(start + 7)
                if any(
                    attends(query, key, spec.sink, spec.window) and key > query - 24
                    for query in positions
                )
            }
        assert found == wanted
        cache.advance(7)


def test_a_fork_is_equal_and_independent(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec)
    for _ in range(17):
        for layer in range(3):
            write(cache, array, layer, 16)
        cache.advance(16)
    shortest = max(cache.forkable_from, 260)
    for length in sorted({shortest, 265, cache.length}):
        fork = cache.fork(length)
        assert (fork.length, fork.spec, fork.memory_bytes) == (length, spec, cache.memory_bytes)
        check(write(fork, array, 1, 5), 1, seen(spec, length, length + 5))
        fork.advance(5)
        put(fork, array, 1, np.full((2, 9, 8), 7.0, np.float32))
        fork.advance(9)
        fork.release()
    check(write(cache, array, 1, 3), 1, seen(spec, 272, 275))
    with pytest.raises(ValueError, match="cannot fork"):
        cache.fork(cache.length + 1)
    if cache.forkable_from:
        with pytest.raises(ValueError, match="cannot fork"):
            cache.fork(cache.forkable_from - 1)


def test_forks_share_memory_until_they_part(
    back_end: str, make: Callable[..., Cache], array: Callable[..., Any]
) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=2048)
    cache = make(spec)
    for _ in range(49):
        for layer in range(3):
            write(cache, array, layer, 16)
        cache.advance(16)
    whole = cache.memory_bytes
    # 768 positions are 3 of 8 segments, never to be written again.
    assert cache.fork_bytes(768) == whole * 5 // 8
    assert cache.fork_bytes(700) == whole * 6 // 8
    fork = cache.fork(768)
    assert cache.freed_bytes == whole * 5 // 8
    fork.release()
    assert cache.freed_bytes == whole
    fork.release()


def test_a_budget_holds_with_nothing_half_taken(
    back_end: str,
    make: Callable[..., Cache],
    array: Callable[..., Any],
    spec: CacheSpec,
) -> None:
    pool = kv_pool()
    cache = make(spec, pool=pool)
    needed = cache.memory_bytes
    assert pool.used_bytes == needed
    pool.budget_bytes = 2 * needed - 1
    with pytest.raises(OutOfKvMemory, match="are free"):
        make(spec, pool=pool)
    assert pool.used_bytes == needed
    with pytest.raises(OutOfKvMemory):
        cache.fork(0)
    assert pool.used_bytes == needed
    pool.budget_bytes = 2 * needed
    other = make(spec, pool=pool)
    write(other, array, 0, 3)
    other.advance(3)
    other.release()
    again = make(spec, pool=pool)
    assert put(again, array, 0, np.ones((2, 3, 8), np.float32)).all()
    again.release()
    cache.release()
    assert pool.used_bytes == 0


def test_random_keys_stand_for_a_history(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec)
    cache.fill(200, seed=1)
    assert cache.length == 200
    found = write(cache, array, 1, 2)
    assert found.shape[2] == len(seen(spec, 200, 202))
    assert np.isfinite(found).all()
    # But for the two that were written, which are numbers of their own.
    assert np.median(np.abs(found)) > 0.3
    with pytest.raises(ValueError, match="200 positions"):
        cache.fill(1, seed=1)
    with pytest.raises(ContextExceeded):
        make(CacheSpec(CacheKind.CONTIGUOUS, capacity=10)).fill(11, seed=1)


def test_random_keys_leave_those_of_a_forks_source(
    make: Callable[..., Cache], array: Callable[..., Any], spec: CacheSpec
) -> None:
    cache = make(spec)
    for layer in range(3):
        write(cache, array, layer, 10)
    cache.advance(10)
    cache.fork(0).fill(8, seed=1)
    check(write(cache, array, 1, 1), 1, seen(spec, 10, 11))


def test_a_fork_that_wrote_nothing_leaves_no_reservation(
    make: Callable[..., Cache],
) -> None:
    pool = kv_pool()
    cache = make(CacheSpec(CacheKind.CONTIGUOUS, capacity=2048), pool=pool)
    cache.fill(2048, seed=1)
    reader = cache.fork(2048)
    used = pool.used_bytes
    assert used == cache.memory_bytes
    fork = cache.fork(1)
    assert pool.used_bytes == 2 * used == used + fork.freed_bytes
    fork.release()
    assert pool.used_bytes == used
    pool.budget_bytes = used * 3 // 2
    with pytest.raises(OutOfKvMemory):
        cache.fork(1)
    assert pool.used_bytes == used
    for left, held in ((reader, used), (cache, 0)):
        left.release()
        assert pool.used_bytes == held
