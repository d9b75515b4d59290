"""Ways of keeping K/V, and caches of them on one verifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.counted_store import CountedStore
from scripts.bench.watched_store import WatchedStore

Numbers = NDArray[np.float32]
KeysValues = tuple[Numbers, Numbers]
"""Keys and values [kv_heads, n, head_dim]."""
Store = TypeVar("Store", bound=EvictedStore)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A kind of cache, and for `restored` its restorer."""

    kind: CacheKind
    restorer: RestorerKind | None = None

    @property
    def name(self) -> str:
        """As reports call it: `full`, `sink_window`, `restored archive`."""
        if self.kind is CacheKind.CONTIGUOUS:
            return "full"
        return self.kind.value if self.restorer is None else f"restored {self.restorer.value}"


FULL = Strategy(CacheKind.CONTIGUOUS)
SINK_WINDOW = Strategy(CacheKind.SINK_WINDOW)
EXACT = Strategy(CacheKind.RESTORED, RestorerKind.IDENTITY)
STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        FULL,
        SINK_WINDOW,
        *(Strategy(CacheKind.RESTORED, restorer) for restorer in RestorerKind),
    )
}


@dataclass(frozen=True, slots=True)
class Restorer:
    """What one kind of restorer is on this verifier.

    `make` gives an empty store of what `evicted_shape` says. `map_vectors` gives
    each layer's keys and values from context vectors [n, width] of the positions
    from a first one on; None where keys and values themselves are kept.
    """

    spec: RestorerSpec
    make: Callable[[EvictedShape], EvictedStore]
    map_vectors: Callable[[Numbers, int], Mapping[int, KeysValues]] | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A restorer's keys and values by layer [kv_heads, positions from the sink on, head_dim]."""

    keys: Mapping[int, Numbers]
    values: Mapping[int, Numbers]


class Caches:
    """Opens caches; every one is released when its context ends."""

    def __init__(
        self,
        verifier: Verifier,
        sink: int,
        window: int,
        restorers: Mapping[RestorerKind, Restorer],
    ) -> None:
        self.sink = sink
        self.window = window
        self._verifier = verifier
        self._restorers = restorers

    def spec(self, strategy: Strategy, capacity: int) -> CacheSpec:
        """The cache of a strategy; `capacity` tokens are the longest history of `full`."""
        if strategy.kind is CacheKind.CONTIGUOUS:
            longest = min(capacity, self._verifier.info.context_length)
            return CacheSpec(strategy.kind, capacity=longest)
        restorer = None
        if strategy.restorer is not None:
            restorer = self._restorers[strategy.restorer].spec
        return CacheSpec(strategy.kind, sink=self.sink, window=self.window, restorer=restorer)

    @contextmanager
    def opened(self, strategy: Strategy, capacity: int) -> Iterator[KvCache]:
        """An empty cache."""
        with self._seen(strategy, capacity, lambda store, _: store) as (cache, _):
            yield cache

    @contextmanager
    def watched(
        self, strategy: Strategy, capacity: int
    ) -> Iterator[tuple[KvCache, WatchedStore | None]]:
        """An empty cache with its store, which can be looked at; None where there is none."""
        with self._seen(strategy, capacity, WatchedStore) as found:
            yield found

    @contextmanager
    def counted(
        self, strategy: Strategy, capacity: int
    ) -> Iterator[tuple[KvCache, CountedStore | None]]:
        """An empty cache with its store, which counts what crosses; None where there is none."""
        with self._seen(strategy, capacity, CountedStore) as found:
            yield found

    @contextmanager
    def _seen(
        self,
        strategy: Strategy,
        capacity: int,
        wrap: Callable[[EvictedStore, EvictedShape], Store],
    ) -> Iterator[tuple[KvCache, Store | None]]:
        spec = self.spec(strategy, capacity)
        store = None
        if strategy.restorer is not None:
            shape = self._verifier.evicted_shape(spec)
            store = wrap(self._restorers[strategy.restorer].make(shape), shape)
        cache = self._verifier.allocate(spec, store)
        try:
            yield cache, store
        finally:
            cache.release()

    def restored(self, strategy: Strategy, store: WatchedStore | None) -> Restored | None:
        """What a store gives back of all that was deposited; None when nothing was."""
        if strategy.restorer is None or store is None or store.length <= self.sink:
            return None
        mapped = self._restorers[strategy.restorer].map_vectors
        if mapped is not None:
            layers = mapped(store.vectors(), self.sink)
        else:
            layers = {layer: store.keys_values(layer) for layer in store.layers}
        return Restored(
            {layer: keys for layer, (keys, _) in layers.items()},
            {layer: values for layer, (_, values) in layers.items()},
        )

    def room(self, cache: KvCache) -> int:
        """Tokens that still fit."""
        limit = self._verifier.info.context_length
        if cache.spec.kind is CacheKind.CONTIGUOUS:
            limit = min(limit, cache.spec.capacity)
        return limit - cache.length
