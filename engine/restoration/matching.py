"""Whether a cache, its verifier and its store of evicted positions fit each other."""

from __future__ import annotations

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import BadParameters, TrainedForAnother


def evicted_shape(layout: KvLayout, spec: CacheSpec, dtype: str) -> EvictedShape:
    """What the store of a cache of `spec` is to keep, `dtype` being the cache's.

    Raises `BadParameters` for another kind of cache, and what `KvLayout.check` raises.
    """
    layout.check(spec)
    if not spec.hands_over:
        raise BadParameters(f"a cache {spec.kind} has no store of what it evicts")
    return EvictedShape(
        groups=layout.restored_groups,
        dtype=dtype,
        sink=spec.sink,
        window=spec.window,
        context_length=layout.context_length,
        width=spec.restorer.width if spec.restorer is not None else 0,
        codec=spec.packed_by,
    )


def matching_encoder(spec: CacheSpec, evicted: EvictedStore | None) -> FeatureEncoder | None:
    """What makes the context vectors of a cache of `spec` over `evicted`, if it keeps any.

    Raises `BadParameters` for a store that is missing or not the restorer's.
    """
    restorer = spec.restorer if spec.kind is CacheKind.RESTORED else None
    if restorer is None or evicted is None:
        if restorer is None and evicted is None:
            return None
        raise BadParameters(
            f"a cache {spec.kind} {'without' if evicted is None else 'with'} a store of what it"
            " evicts",
            restorer=str(restorer.kind) if restorer is not None else "",
        )
    if evicted.spec != restorer:
        raise BadParameters(
            f"the store is one of {evicted.spec}, the cache's restorer is {restorer}",
            restorer=str(restorer.kind),
        )
    if not restorer.width:
        return None
    encoder = evicted.encoder
    if encoder is None or encoder.spec.width != restorer.width:
        raise BadParameters(
            f"the store has no encoder of vectors of {restorer.width} values",
            restorer=str(restorer.kind),
        )
    return encoder


def check_encoder(encoder: FeatureEncoder, info: VerifierInfo) -> None:
    """Raises `TrainedForAnother` for one of layers that the verifier does not have."""
    spec = encoder.spec
    if spec.hidden_size != info.hidden_size or not set(spec.taps) <= set(range(info.layer_count)):
        raise TrainedForAnother(
            f"context vectors of layers {spec.taps} of {spec.hidden_size} values cannot be"
            f" made: {info.model_id} has {info.layer_count} layers of {info.hidden_size}",
            encoder=spec.digest,
        )
