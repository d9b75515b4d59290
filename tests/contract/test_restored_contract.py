"""What every back end says of restored caches, and what they give."""

from __future__ import annotations

import numpy as np
import pytest

from kakeya_fleet.engine.backends import BACKENDS, installed_backends
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, KvLayout
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import BadParameters, RestorerLost
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from tests.support import evicted_stores
from tests.support import restored_caches as caches
from tests.support.breadth import wide
from tests.support.small_verifiers import COMPILED, tried_on

IDENTITY = RestorerSpec(RestorerKind.IDENTITY)
RESTORED = CacheSpec(CacheKind.RESTORED, sink=3, window=20, restorer=IDENTITY)


def test_it_is_allocated_whole(verifier: Verifier) -> None:
    before = verifier.pool.used_bytes
    cache = verifier.allocate(RESTORED)
    assert cache.evicted is not None
    assert (cache.spec, cache.widest) == (RESTORED, 20)
    assert cache.memory_bytes == verifier.bytes_needed(RESTORED)
    cache.release()
    cache.release()
    assert verifier.pool.used_bytes == before


def test_what_does_not_fit_is_refused_with_nothing_taken(verifier: Verifier) -> None:
    before = verifier.pool.used_bytes
    archive = CacheSpec(
        CacheKind.RESTORED, sink=3, window=20, restorer=RestorerSpec(RestorerKind.ARCHIVE)
    )
    store = verifier.allocate(RESTORED).evicted
    with pytest.raises(BadParameters, match="without a store"):
        verifier.allocate(archive)
    with pytest.raises(BadParameters, match="restorer is"):
        verifier.allocate(archive, store)
    with pytest.raises(BadParameters, match="with a store"):
        verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=20), store)
    assert verifier.pool.used_bytes == before + verifier.bytes_needed(RESTORED)


def test_the_shape_of_the_store_is_that_of_the_layers_that_see_all(verifier: Verifier) -> None:
    shape = verifier.evicted_shape(RESTORED)
    assert isinstance(shape, EvictedShape)
    assert (shape.sink, shape.window, shape.dtype) == (3, 20, verifier.info.dtype)
    assert shape.context_length == verifier.info.context_length
    assert shape.bytes_per_position == verifier.info.kv_bytes_per_token
    with pytest.raises(BadParameters):
        verifier.evicted_shape(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=20))


@pytest.mark.parametrize("back_end", sorted(BACKENDS))
def test_a_cache_from_sizes_alone_does_not_forget_silently(back_end: str) -> None:
    if back_end not in installed_backends():
        pytest.skip(f"the libraries of the back end {back_end} are not installed")
    kernels = BACKENDS[back_end].kernels()("float32")
    layout = KvLayout((AttentionLayer(kv_heads=2, groups=2, head_dim=8),), 4096, item_bytes=4)
    with pytest.raises(BadParameters):
        SlabCache.allocate(layout, RESTORED, kernels, kv_pool(), dict)


@pytest.mark.parametrize("verifier", tried_on("mlx", COMPILED), indirect=True)
def test_what_was_evicted_counts_as_if_it_had_stayed(verifier: Verifier) -> None:
    """Whatever the blocks, to the bit; and as the whole history without a window does."""
    tokens = caches.HISTORY[:100]
    before = verifier.pool.used_bytes
    cache = verifier.allocate(RESTORED)
    one = caches.run(verifier, cache, tokens, [1])
    assert cache.memory_bytes == verifier.bytes_needed(RESTORED)
    assert cache.evicted is not None
    assert cache.evicted.length >= len(tokens) - 20
    blocks = caches.run(verifier, verifier.allocate(RESTORED), tokens, [16, 5, 20])
    assert one.tobytes() == blocks.tobytes()
    whole = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=200))
    full = caches.run(verifier, whole, tokens, [16])
    assert np.abs(one - full).max() < 1e-4 * np.abs(full).max()
    assert whole.evicted is None
    forgetting = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=20))
    assert np.abs(one - caches.run(verifier, forgetting, tokens, [16])).max() > 1e-2
    assert verifier.pool.used_bytes > before


@pytest.mark.parametrize("verifier", tried_on("mlx", COMPILED), indirect=True)
def test_a_fork_goes_on_with_what_its_source_had_evicted(verifier: Verifier) -> None:
    tokens = caches.HISTORY[:100]
    straight = caches.run(verifier, verifier.allocate(RESTORED), tokens, [16])
    cache = verifier.allocate(RESTORED)
    caches.run(verifier, cache, tokens[:70], [16])
    forked = cache.fork(70)
    caches.run(verifier, cache, [1] * 30, [16])
    cache.release()
    assert caches.run(verifier, forked, tokens[70:], [7]).tobytes() == straight[70:].tobytes()


def test_a_store_that_is_lost_leaves_no_feeds_tokens(verifier: Verifier) -> None:
    """Of two sessions of a forward the one's store is lost: the other goes on where it was."""
    tokens = caches.HISTORY[:100]
    straight = caches.run(verifier, verifier.allocate(RESTORED), tokens, [16])
    cache, other = verifier.allocate(RESTORED), verifier.allocate(RESTORED)
    for each in (cache, other):
        caches.run(verifier, each, tokens[:60], [16])
    assert other.evicted is not None
    other.evicted.release()
    for feeds in ((cache, other), (other, cache)):
        with pytest.raises(RestorerLost):
            verifier.forward_batch([Feed(each, [7] * 5, want_logits=True) for each in feeds])
        assert cache.length == other.length == 60
    assert caches.run(verifier, cache, tokens[60:], [9]).tobytes() == straight[60:].tobytes()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
@pytest.mark.parametrize("call", [2, wide(3), 5, wide(8)])
def test_a_store_that_is_lost_at_any_call_leaves_nothing(verifier: Verifier, call: int) -> None:
    archive = RestorerSpec(RestorerKind.ARCHIVE)
    spec = CacheSpec(CacheKind.RESTORED, sink=3, window=20, restorer=archive)
    tokens = caches.HISTORY[:80]
    naive = evicted_stores.NaiveEvictedStore(verifier.evicted_shape(spec))
    fragile = caches.FragileStore(naive, call)
    cache = verifier.allocate(spec, fragile)
    with pytest.raises(RestorerLost):
        caches.run(verifier, cache, tokens, [8])
    assert cache.length % 8 == 0
    kept, fragile.calls = cache.length, 1 << 30
    rest = caches.run(verifier, cache, tokens[kept:], [8])
    own = evicted_stores.NaiveEvictedStore(verifier.evicted_shape(spec))
    straight = caches.run(verifier, verifier.allocate(spec, own), tokens, [8])
    assert rest.tobytes() == straight[kept:].tobytes()
