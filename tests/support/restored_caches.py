"""Restored caches for tests: histories, runs, and stores that are lost at a chosen call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import RestorerLost

IDENTITY = RestorerSpec(RestorerKind.IDENTITY)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(20 * (3 + 16))]


def restored(sink: int = 3, window: int = 16, restorer: RestorerSpec = IDENTITY) -> CacheSpec:
    return CacheSpec(CacheKind.RESTORED, sink=sink, window=window, restorer=restorer)


def run(
    verifier: Verifier, cache: KvCache, tokens: Sequence[int], sizes: Sequence[int]
) -> np.ndarray:
    """The logits of `tokens` in blocks of `sizes`, over and over."""
    rows: list[np.ndarray] = []
    done = 0
    while done < len(tokens):
        count = min(sizes[len(rows) % len(sizes)], cache.widest)
        chunk = tokens[done : done + count]
        logits = verifier.forward(cache, chunk, want_logits=True)
        assert logits is not None
        rows.append(logits)
        done += len(chunk)
    return np.concatenate(rows)


class FragileStore:
    """Passes on to `store` until `calls` deposits and begins were made; then it is lost."""

    def __init__(self, store: EvictedStore, calls: int) -> None:
        self._store = store
        self.calls = calls
        self.released = False

    @property
    def spec(self) -> RestorerSpec:
        return self._store.spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        return self._store.encoder

    @property
    def length(self) -> int:
        self._check(0)
        return self._store.length

    @property
    def stored_bytes(self) -> int:
        return self._store.stored_bytes

    def deposit(self, first: int, evicted: Evicted) -> None:
        self._check()
        self._store.deposit(first, evicted)

    def begin(self, queries: EvictedQueries) -> None:
        self._check()
        self._store.begin(queries)

    def finish(self) -> PartialAttention:
        self._check(0)
        return self._store.finish()

    def abandon(self) -> None:
        self._store.abandon()

    def fork(self, length: int) -> EvictedStore:
        self._check(0)
        return self._store.fork(length)

    def release(self) -> None:
        self.released = True
        self._store.release()

    def _check(self, cost: int = 1) -> None:
        if self.calls < cost or self.calls == 0:
            self.calls = 0
            raise RestorerLost("as scripted")
        self.calls -= cost
