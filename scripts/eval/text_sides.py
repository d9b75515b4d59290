"""Ways of keeping the keys and values of a model, side by side, and texts read by each."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, KvCache
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters, choose_token
from kakeya_fleet.fleet.placement.codec_ladder import FIRST, PackedQuality
from scripts.bench.counted_store import CountedStore
from scripts.bench.kv_strategies import FULL, SINK_WINDOW, Caches, Strategy
from scripts.eval.quality_sides import normalized
from scripts.eval.restorers import Restoring
from scripts.eval.teacher_forced import chunk_tokens, logits_of, parts, read

ARCHIVE = Strategy(CacheKind.RESTORED, RestorerKind.ARCHIVE)
ECONOMY = FIRST[PackedQuality.ECONOMY]
PROJECTION = Strategy(CacheKind.RESTORED, RestorerKind.PROJECTION)


@dataclass(frozen=True, slots=True)
class Side:
    """One way of keeping keys and values."""

    name: str
    caches: Caches
    strategy: Strategy

    @contextmanager
    def opened(self, capacity: int) -> Iterator[KvCache]:
        """An empty cache of a text of at most so many tokens."""
        with self.caches.opened(self.strategy, capacity) as cache:
            yield cache

    @contextmanager
    def counted(self, capacity: int) -> Iterator[tuple[KvCache, CountedStore | None]]:
        """An empty cache, and what counts the bytes that its restorer is sent, and answers."""
        with self.caches.counted(self.strategy, capacity) as found:
            yield found


def sides_of(
    verifier: Verifier, sink: int, window: int, restorings: Sequence[Restoring]
) -> list[Side]:
    """Full attention first; a learned map of each of `restorings`, the widest first, by name.

    With an archive whose keys and values a codec packs, that of the quality `economy`, by whole
    tiles, behind a sink of one.
    """
    all_caches = [Caches(verifier, sink, window, each.restorers) for each in restorings]
    found = [
        Side(strategy.name, all_caches[0], strategy) for strategy in (FULL, SINK_WINDOW, ARCHIVE)
    ]
    packed = {RestorerKind.ARCHIVE: restorings[0].packed(ECONOMY)}
    name = f"{ARCHIVE.name}, {ECONOMY}"
    found.append(Side(name, Caches(verifier, TILE, window, packed), ARCHIVE))
    maps = [
        (-restorer.spec.width, restorer.spec.model_id, caches)
        for each, caches in zip(restorings, all_caches, strict=True)
        if (restorer := each.restorers.get(RestorerKind.PROJECTION)) is not None
    ]
    for width, name, caches in sorted(maps, key=lambda found: found[:2]):
        found.append(Side(f"{PROJECTION.name}, {-width} numbers, {name}", caches, PROJECTION))
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, read by one side."""

    nats: np.ndarray
    """Of each token but the first, given all before it, float64 [n - 1]."""
    places: np.ndarray
    """Logarithms of the next token's probabilities at every so-manieth position, float64."""
    seconds: float


def read_text(verifier: Verifier, cache: KvCache, tokens: Sequence[int], every: int) -> Reading:
    """Reads `tokens` into an empty cache as the engine reads prompts."""
    nats, places, seconds = [], [], 0.0
    first = 0
    for part in parts(tokens, chunk_tokens(verifier, cache)):
        began = time.perf_counter()
        logits = logits_of(verifier, cache, part)
        seconds += time.perf_counter() - began
        rows = normalized(logits.astype(np.float32))
        targets = tokens[first + 1 : first + len(part) + 1]
        nats.append(-rows[np.arange(len(targets)), targets].astype(np.float64))
        places.append(rows[(-first) % every :: every].astype(np.float64))
        first += len(part)
    return Reading(np.concatenate(nats), np.concatenate(places), seconds)


def continued(
    verifier: Verifier,
    cache: KvCache,
    fed: Sequence[int],
    count: int,
    parameters: SamplingParameters = GREEDY,
) -> list[int]:
    """So many tokens behind what is in the cache and `fed`; the last one is not read."""
    read(verifier, cache, fed[:-1])
    tokens = [int(fed[-1])]
    for _ in range(count):
        (logits,) = logits_of(verifier, cache, tokens[-1:])
        tokens.append(choose_token(logits, parameters, cache.length))
    return tokens[1:]


def perplexity_of(nats: Sequence[np.ndarray]) -> float:
    """Of the tokens of all texts together."""
    return math.exp(float(np.concatenate(list(nats)).mean()))
