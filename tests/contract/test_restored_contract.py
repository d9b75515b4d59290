"""What every back end says of restored caches: it has them, or refuses them by name."""

from __future__ import annotations

import pytest

from engine.backends import BACKENDS
from engine.cache import CacheKind, CacheSpec
from engine.errors import BadParameters, KvStrategyUnsupported
from engine.kv_layout import AttentionLayer, KvLayout
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerKind, RestorerSpec
from engine.verifier import Verifier

IDENTITY = RestorerSpec(RestorerKind.IDENTITY)
RESTORED = CacheSpec(CacheKind.RESTORED, sink=3, window=20, restorer=IDENTITY)


def test_it_is_allocated_whole_or_refused_with_nothing_taken(verifier: Verifier) -> None:
    before = verifier.pool.used_bytes
    if verifier.info.backend == "torch":
        cache = verifier.allocate(RESTORED)
        assert cache.evicted is not None
        assert (cache.spec, cache.widest) == (RESTORED, 20)
        assert cache.memory_bytes == verifier.bytes_needed(RESTORED)
        cache.release()
        cache.release()
    else:
        for refuse in (verifier.allocate, verifier.bytes_needed, verifier.evicted_shape):
            with pytest.raises(KvStrategyUnsupported) as caught:
                refuse(RESTORED)
            assert caught.value.metadata["backend"] == verifier.info.backend
    assert verifier.pool.used_bytes == before


def test_the_shape_of_the_store_is_that_of_the_layers_that_see_all(verifier: Verifier) -> None:
    if verifier.info.backend != "torch":
        pytest.skip("this back end has no restored cache")
    shape = verifier.evicted_shape(RESTORED)
    assert isinstance(shape, EvictedShape)
    assert (shape.sink, shape.window, shape.dtype) == (3, 20, verifier.info.dtype)
    assert shape.context_length == verifier.info.context_length
    assert shape.bytes_per_position == verifier.info.kv_bytes_per_token
    with pytest.raises(BadParameters):
        verifier.evicted_shape(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=20))


def test_other_caches_have_no_store(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    assert cache.evicted is None
    cache.release()


@pytest.mark.parametrize("back_end", sorted(BACKENDS))
def test_a_cache_from_sizes_alone_does_not_forget_silently(back_end: str) -> None:
    module = pytest.importorskip(BACKENDS[back_end])
    layout = KvLayout((AttentionLayer(kv_heads=2, groups=2, head_dim=8),), 4096, item_bytes=4)
    expected = BadParameters if back_end == "torch" else KvStrategyUnsupported
    with pytest.raises(expected):
        module.new_cache(layout, RESTORED)
