"""Caches from sizes alone, without a model."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.group_store import TorchPool, torch_pool
from kakeya_fleet.engine.backends.torch_backend.kv_cache import TorchKvCache
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import KvLayout


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
    Raises what `engine.contracts.verifier.Verifier.allocate` raises.
    """
    own_pool = pool if pool is not None else torch_pool()
    return TorchKvCache.allocate(layout, spec, torch_dtype(dtype), own_pool, dict, evicted)
