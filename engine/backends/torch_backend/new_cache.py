"""Caches from sizes alone, without a model."""

from __future__ import annotations

from engine.backends.torch_backend.dtypes import torch_dtype
from engine.backends.torch_backend.group_store import TorchPool, torch_pool
from engine.backends.torch_backend.kv_cache import TorchKvCache
from engine.cache import CacheSpec
from engine.kv_layout import KvLayout
from engine.restoration.contract import EvictedStore


def new_cache(
    layout: KvLayout,
    spec: CacheSpec,
    *,
    dtype: str = "float32",
    pool: TorchPool | None = None,
    evicted: EvictedStore | None = None,
) -> TorchKvCache:
    """An empty cache of `spec` for `layout`, of layers without recurrent states.

    One of kind `restored` takes over `evicted`.

    From a model's config: `engine.backends.torch_backend.layer_plan.kv_layout`.
    Raises what `engine.verifier.Verifier.allocate` raises.
    """
    own_pool = pool if pool is not None else torch_pool()
    return TorchKvCache.allocate(layout, spec, torch_dtype(dtype), own_pool, dict, evicted)
