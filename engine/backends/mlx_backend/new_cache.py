"""Caches from sizes alone, without a model."""

from __future__ import annotations

from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.group_store import MlxPool, mlx_pool
from kakeya_fleet.engine.backends.mlx_backend.kv_cache import MlxKvCache
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import KvLayout


def new_cache(
    layout: KvLayout,
    spec: CacheSpec,
    *,
    dtype: str = "float32",
    pool: MlxPool | None = None,
    evicted: EvictedStore | None = None,
) -> MlxKvCache:
    """An empty cache of `spec` for `layout`, of layers without recurrent states.

    One of kind `restored` takes over `evicted`.

    From a model's config: `engine.backends.mlx_backend.layer_plan.kv_layout`.
    Raises what `engine.contracts.verifier.Verifier.allocate` raises.
    """
    own_pool = pool if pool is not None else mlx_pool()
    return MlxKvCache.allocate(layout, spec, mlx_dtype(dtype), own_pool, {}, evicted)
