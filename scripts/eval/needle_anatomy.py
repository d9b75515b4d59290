"""What lies behind a strategy's recall at one context: errors, attention, bytes, peaks and speed.

Each case is read by full attention, then by every strategy in an order shuffled
anew; a case's figures compare the two.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.sampling.choice import GREEDY, choose_token
from scripts.bench.intervals import summary
from scripts.bench.kv_strategies import EXACT, FULL, Caches, Restored, Strategy
from scripts.bench.process_memory import allocation_peak
from scripts.eval.needle_cases import LAST_POSITIONS
from scripts.eval.recall_task import RecallCase
from scripts.eval.restoration_error import attention_overlap, relative_error
from scripts.eval.teacher_forced import logits_of, read

Keys = NDArray[np.float32]
EFFECTIVE_ATTENTION_IS = (
    "sum over positions of min(p, q), mean over the layers, heads and last positions: p is full "
    "attention's distribution, q that of the same queries over what the strategy has (sink, "
    "window, and restored keys in the place of evicted ones); without restoration it is the share "
    "of p on what is resident"
)
ERROR_IS = (
    "squared error of restored keys or values over the squared size of full attention's, at the "
    "positions evicted before the last tokens; by layer, the mean over the cases; zeros get 1"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """Full attention over one prompt: K/V by layer [kv_heads, length, head_dim], and what followed.

    `queries` [heads, n, head_dim] are those of the last positions, from `first` on, by layer.
    """

    keys: Mapping[int, Keys]
    values: Mapping[int, Keys]
    queries: Mapping[int, Keys]
    scaling: float
    first: int
    continuation: tuple[int, ...]


@dataclass(slots=True)
class Anatomy:
    """All cases of one strategy."""

    tokens_per_second: list[float] = field(default_factory=list)
    kv_bytes: int = 0
    stored_bytes: int = 0
    peak_step_bytes: int = 0
    keys: list[dict[int, float]] = field(default_factory=list)
    values: list[dict[int, float]] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)
    same_tokens: list[bool] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """For JSON; errors are None where nothing is restored."""
        return {
            "decode_tokens_per_second": summary(self.tokens_per_second),
            "sustained_kv_bytes": self.kv_bytes,
            "restorer_bytes": self.stored_bytes,
            "peak_step_bytes": self.peak_step_bytes,
            "key_error_by_layer": _means(self.keys),
            "value_error_by_layer": _means(self.values),
            "effective_attention": statistics.fmean(self.overlaps) if self.overlaps else None,
            "same_tokens_as_full": statistics.fmean(self.same_tokens),
        }


def _means(found: Sequence[Mapping[int, float]]) -> list[float] | None:
    if not found:
        return None
    return [statistics.fmean(case[layer] for case in found) for layer in sorted(found[0])]


class Dissection:
    """One verifier's strategies, looked into case by case."""

    def __init__(self, verifier: Verifier, caches: Caches, *, decoded: int, seed: int) -> None:
        """`decoded` single-token steps are timed a case."""
        self._verifier = verifier
        self._caches = caches
        self._decoded = decoded
        self._order = random.Random(seed)

    def rung(
        self, strategies: Sequence[Strategy], cases: Sequence[RecallCase]
    ) -> dict[str, dict[str, Any]]:
        """Summaries by strategy, of cases of one context."""
        found = {strategy.name: Anatomy() for strategy in strategies}
        for index, case in enumerate(cases):
            reference = self._reference(case)
            for strategy in self._order.sample(list(strategies), len(strategies)):
                self._add(found[strategy.name], strategy, case, reference, want_peak=index == 0)
        return {name: anatomy.summary() for name, anatomy in found.items()}

    def _reference(self, case: RecallCase) -> Reference:
        """Full attention's own K/V, and its queries as a store with exact K/V is asked them."""
        size = case.prompt.size
        with self._caches.opened(FULL, self._capacity(case)) as cache:
            read(self._verifier, cache, case.prompt[:-LAST_POSITIONS])
            logits = logits_of(self._verifier, cache, case.prompt[-LAST_POSITIONS:])
            keys, values = _all_keys_values(cache, size)
            continuation, _ = self._decode(cache, int(logits[-1].argmax()))
        queries: dict[int, Keys] = {}
        scaling = 0.0
        with self._caches.watched(EXACT, size) as (cache, store):
            read(self._verifier, cache, case.prompt[:-LAST_POSITIONS])
            read(self._verifier, cache, case.prompt[-LAST_POSITIONS:])
            asked_of = {} if store is None else store.queries
            for layer, asked in asked_of.items():
                queries[layer], scaling = asked.queries, asked.scaling
        return Reference(keys, values, queries, scaling, size - LAST_POSITIONS, continuation)

    def _add(
        self,
        anatomy: Anatomy,
        strategy: Strategy,
        case: RecallCase,
        reference: Reference,
        *,
        want_peak: bool,
    ) -> None:
        """Reads one case under one strategy, and looks."""
        with self._caches.watched(strategy, self._capacity(case)) as (cache, store):
            read(self._verifier, cache, case.prompt[:-LAST_POSITIONS])
            logits = logits_of(self._verifier, cache, case.prompt[-LAST_POSITIONS:])
            restored = self._caches.restored(strategy, store)
            if restored is not None:
                anatomy.keys.append(_errors(reference.keys, restored.keys, self._caches.sink))
                anatomy.values.append(_errors(reference.values, restored.values, self._caches.sink))
            if reference.queries:
                anatomy.overlaps.append(self._overlap(strategy, reference, restored))
            continuation, seconds = self._decode(cache, int(logits[-1].argmax()))
            anatomy.same_tokens.append(continuation == reference.continuation)
            anatomy.tokens_per_second.append(1.0 / seconds)
            anatomy.kv_bytes = cache.memory_bytes
            anatomy.stored_bytes = 0 if cache.evicted is None else cache.evicted.stored_bytes
            if want_peak:
                anatomy.peak_step_bytes = self._peak(cache)

    def _capacity(self, case: RecallCase) -> int:
        """Room for the prompt, the timed steps, and the step whose peak is taken."""
        return case.prompt.size + self._decoded + self._verifier.info.width

    def _overlap(
        self, strategy: Strategy, reference: Reference, restored: Restored | None
    ) -> float:
        if strategy == FULL:
            return 1.0
        found = [
            attention_overlap(
                queries,
                reference.first,
                reference.keys[layer],
                scaling=reference.scaling,
                sink=self._caches.sink,
                window=self._caches.window,
                restored=None if restored is None else restored.keys[layer],
            )
            for layer, queries in reference.queries.items()
        ]
        return statistics.fmean(found)

    def _decode(self, cache: KvCache, token: int) -> tuple[tuple[int, ...], float]:
        """Greedy single-token steps behind the prompt; the median seconds of one."""
        tokens = [token]
        seconds = []
        for _ in range(self._decoded - 1):
            began = time.perf_counter()
            logits = self._verifier.forward(cache, [tokens[-1]], want_logits=True)
            if logits is None:
                raise TypeError("a verifier that was asked for logits gave none")
            tokens.append(choose_token(logits[0], GREEDY, cache.length))
            seconds.append(time.perf_counter() - began)
        return tuple(tokens), statistics.median(seconds)

    def _peak(self, cache: KvCache) -> int:
        """What torch's allocator gives out at most in one verify step, in this process."""
        ids = [0] * min(self._verifier.info.width, self._caches.room(cache))
        return allocation_peak(lambda: self._verifier.forward(cache, ids, want_logits=True))


def _errors(full: Mapping[int, Keys], other: Mapping[int, Keys], sink: int) -> dict[int, float]:
    return {
        layer: relative_error(full[layer][:, sink : sink + found.shape[1]], found)
        for layer, found in other.items()
    }


def _all_keys_values(cache: KvCache, length: int) -> tuple[dict[int, Keys], dict[int, Keys]]:
    """Every layer's keys and values of a contiguous cache."""
    if not isinstance(cache, SlabCache) or cache.kernels.dtype != "float32":
        raise TypeError("keys and values are read of caches in float32 only")
    keys, values = {}, {}
    for group in cache.groups:
        for layer in group.layers:
            pairs = [cache.held(layer, position) for position in range(length)]
            keys[layer], values[layer] = np.stack(pairs, axis=2)
    return keys, values
