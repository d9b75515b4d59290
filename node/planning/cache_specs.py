"""The cache that a session has, by how its keys and values are to be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import round_up
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.fleet.placement.packing import FULL_SINK, FULL_WINDOW
from kakeya_fleet.fleet.placement.plan import KvStrategy


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a session says of its keys and values, defaults filled in.

    `sink_tokens` and `window_tokens` are those of `sink_window` and `restored`;
    `max_history_tokens` that of `full`, 0 for the model's positions; `codec` names what packs
    there what is behind `full_window_tokens`, empty for nothing; `restorer` is that of
    `restored`, None for the others.
    """

    strategy: KvStrategy
    sink_tokens: int
    window_tokens: int
    max_history_tokens: int = 0
    codec: str = ""
    full_window_tokens: int = FULL_WINDOW
    restorer: RestorerSpec | None = None


def cache_spec(keeping: Keeping, positions: int) -> CacheSpec:
    """The cache to allocate on a verifier whose model has so many `positions`."""
    if keeping.strategy is KvStrategy.FULL:
        return _full(keeping, positions)
    if keeping.strategy is KvStrategy.RESTORED:
        spec = CacheSpec(
            CacheKind.RESTORED,
            sink=keeping.sink_tokens,
            window=keeping.window_tokens,
            restorer=keeping.restorer,
        )
        # What is packed leaves in whole tiles.
        return replace(spec, sink=round_up(spec.sink, spec.tile))
    return CacheSpec(CacheKind.SINK_WINDOW, sink=keeping.sink_tokens, window=keeping.window_tokens)


def _full(keeping: Keeping, positions: int) -> CacheSpec:
    spec = CacheSpec(
        CacheKind.CONTIGUOUS,
        capacity=min(keeping.max_history_tokens or positions, positions),
        # A bound that the client gave is taken at once, so that it can be relied on.
        grows=not keeping.max_history_tokens,
    )
    if not keeping.codec:
        return spec
    return replace(
        spec,
        kind=CacheKind.PACKED,
        sink=FULL_SINK,
        window=keeping.full_window_tokens,
        codec=keeping.codec,
    )
