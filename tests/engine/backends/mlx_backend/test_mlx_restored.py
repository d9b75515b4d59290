"""Restored caches on MLX: every family, any course of events, stores of another back end."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("torch", reason="torch is not installed, which makes the checkpoints")

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.forward_step import ArrayCache
from kakeya_fleet.engine.backends.mlx_backend.kernels import MlxKernels
from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import MlxVerifier, load_verifier
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import OutOfKvMemory, TrainedForAnother
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.segment_store import SegmentStore
from scripts.train.tiny_families import GEMMA4_26B
from tests.support import restored_caches as caches
from tests.support.breadth import all_wide_but

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=200)
LENGTH = 96
FAMILIES = (GEMMA4_26B, "Gemma3ForCausalLM", "Gemma4ForCausalLM", "Qwen3_5ForCausalLM")
"""Layers that `tests/contract` does not run."""


def loaded(path: Path, dtype: str = "float32") -> MlxVerifier:
    return load_verifier(ModelFolder(path, "random"), dtype=dtype)


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> MlxVerifier:
    return loaded(random_checkpoint("Qwen3_5ForCausalLM"))


def singly(verifier: Verifier, spec: CacheSpec, tokens: list[int]) -> np.ndarray:
    """The logits of `tokens`, one a forward where sink and window end and the ring goes round."""
    cache = verifier.allocate(spec)
    spans = (
        *((0, 16, 8), (16, 28, 1), (28, 60, 16)),
        *((60, 68, 1), (68, 80, 4), (80, len(tokens), 16)),
    )
    return np.concatenate(
        [caches.run(verifier, cache, tokens[a:b], [size]) for a, b, size in spans]
    )


# Both kinds that are kept otherwise than a plain layer: shared keys and a recurrence.
@pytest.mark.parametrize(
    "family", all_wide_but(["Gemma4ForCausalLM", "Qwen3_5ForCausalLM"], FAMILIES)
)
def test_it_is_full_attention_and_the_history_alone_decides(
    random_checkpoint: Callable[..., Path], family: str
) -> None:
    verifier = loaded(random_checkpoint(family))
    tokens = caches.HISTORY[:LENGTH]
    one = singly(verifier, caches.restored(), tokens)
    blocks = caches.run(verifier, verifier.allocate(caches.restored()), tokens, [16, 3, 7])
    assert one.tobytes() == blocks.tobytes()
    full = caches.run(verifier, verifier.allocate(FULL), tokens, [16])
    assert np.abs(one - full).max() < 1e-4 * np.abs(full).max()


def test_in_bfloat16_the_bits_are_those_of_the_history(
    random_checkpoint: Callable[..., Path],
) -> None:
    verifier = loaded(random_checkpoint(), "bfloat16")
    tokens = caches.HISTORY[: LENGTH // 2]
    found = [
        caches.run(verifier, verifier.allocate(caches.restored(3, 16, restorer)), tokens, sizes)
        for restorer, sizes in ((caches.IDENTITY, [1]), (caches.IDENTITY, [16, 5]))
    ]
    assert found[0].tobytes() == found[1].tobytes()
    full = caches.run(verifier, verifier.allocate(FULL), tokens, [16])
    error = np.sqrt(((found[0] - full) ** 2).mean()) / full.std()
    assert 0 < error < 0.05


class Course:
    """Drafts, rejections, shared forwards, forks and failures; each row is the history's own."""

    def __init__(self, verifier: Verifier, caches: ModuleType, expected: np.ndarray) -> None:
        self.verifier = verifier
        self.tokens = caches.HISTORY[:LENGTH]
        self.spec = caches.restored(3, 16)
        self.expected = expected
        self.caches: list[KvCache] = [verifier.allocate(self.spec)]

    def feed(self, cache: KvCache, right: int, wrong: int) -> tuple[Feed, int]:
        kept = min(right, cache.widest, LENGTH - cache.length)
        tokens = self.tokens[cache.length : cache.length + kept]
        wrong = min(wrong, cache.widest - kept)
        return Feed(cache, [*tokens, *[(tokens[-1] + 1) % 96] * wrong], want_logits=True), kept

    def draft(self, rng: random.Random) -> None:
        chosen = rng.sample(self.caches, rng.randint(1, len(self.caches)))
        fed = [self.feed(cache, rng.randint(1, 16), rng.randint(0, 15)) for cache in chosen]
        starts = [cache.length for cache in chosen]
        outputs = self.verifier.forward_batch([feed for feed, _ in fed])
        for output, cache, start, (_, kept) in zip(outputs, chosen, starts, fed, strict=True):
            rows = self.expected[start : start + kept]
            assert output.logits is not None
            assert output.logits[:kept].tobytes() == rows.tobytes(), (start, kept)
            cache.truncate(start + kept)

    def fork(self, rng: random.Random) -> None:
        cache = rng.choice(self.caches)
        length = max(cache.forkable_from, cache.length - rng.randint(0, 30))
        self.caches.append(cache.fork(length))
        if rng.random() < 0.5:
            # The source goes another way; the fork must not hear of it.
            for _ in range(3):
                self.verifier.forward(cache, [1] * rng.randint(1, 16), want_logits=False)
            self.caches.remove(cache)
            cache.release()

    def fail(self, rng: random.Random) -> None:
        chosen = rng.sample(self.caches, rng.randint(1, len(self.caches)))
        starts = [cache.length for cache in chosen]
        with pytest.MonkeyPatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(SlabCache, "read", failing(SlabCache.read, 0))
            self.verifier.forward_batch(
                [Feed(cache, [1] * (16 // len(chosen)), want_logits=True) for cache in chosen]
            )
        assert [cache.length for cache in chosen] == starts


def failing(read: Callable[..., Any], after: int) -> Callable[..., Any]:
    left = [after]

    def reading(self: Any, *arguments: Any) -> Any:
        if not left[0]:
            raise MemoryError
        left[0] -= 1
        return read(self, *arguments)

    return reading


def test_any_course_of_events_gives_the_bits_of_the_history(verifier: Verifier) -> None:
    tokens = caches.HISTORY[:LENGTH]
    expected = singly(verifier, caches.restored(), tokens)
    before = verifier.pool.used_bytes
    course = Course(verifier, caches, expected)
    rng = random.Random(0)
    for _ in range(24):
        course.caches = [cache for cache in course.caches if not done(cache)]
        course.caches = course.caches or [verifier.allocate(course.spec)]
        step = rng.choice([course.draft, course.draft, course.fork, course.fail])
        if step != course.fork or len(course.caches) < 3:
            step(rng)
        for cache in course.caches:
            assert cache.memory_bytes == verifier.bytes_needed(course.spec)
    for cache in course.caches:
        cache.release()
    assert verifier.pool.used_bytes == before


def done(cache: KvCache) -> bool:
    if cache.length < LENGTH - 16:
        return False
    cache.release()
    return True


def test_a_store_on_torch_serves_a_verifier_on_mlx(verifier: Verifier) -> None:
    """As an archive on another node does: numbers cross, not tensors."""
    spec, tokens = caches.restored(3, 16, ARCHIVE), caches.HISTORY[:LENGTH]
    found = []
    for sizes in ([3], [16, 6]):
        store = TorchEvictedStore(verifier.evicted_shape(spec), ARCHIVE, kv_pool())
        found.append(caches.run(verifier, verifier.allocate(spec, store), tokens, sizes))
    assert found[0].tobytes() == found[1].tobytes()
    full = caches.run(verifier, verifier.allocate(FULL), tokens, [16])
    assert np.abs(found[0] - full).max() < 1e-4 * np.abs(full).max()


class VectorStore:
    """Keeps the vectors it was given, and restores nothing: queries see nothing in it."""

    def __init__(
        self, store: SegmentStore[mx.array], spec: RestorerSpec, encoder: ContextEncoder
    ) -> None:
        self.spec, self.encoder = spec, encoder
        self.length = 0
        self.vectors: dict[int, np.ndarray] = {}
        self._store = store

    @property
    def stored_bytes(self) -> int:
        return sum(vector.nbytes for vector in self.vectors.values())

    def deposit(self, first: int, evicted: Evicted) -> None:
        assert isinstance(evicted, np.ndarray)
        for row, vector in enumerate(evicted):
            self.vectors[first + row] = vector
        self.length = first + len(evicted)

    def begin(self, queries: EvictedQueries) -> None:
        nothing = EvictedQueries(queries.layer, 0, queries.scaling, queries.queries)
        self._store.begin(nothing)

    def finish(self) -> PartialAttention:
        return self._store.finish()

    def abandon(self) -> None:
        self._store.abandon()

    def fork(self, length: int) -> VectorStore:
        copy = VectorStore(self._store, self.spec, self.encoder)
        copy.vectors, copy.length = dict(self.vectors), min(self.length, length)
        return copy

    def release(self) -> None:
        return


def test_the_context_vectors_of_what_leaves_are_deposited_once_each(verifier: MlxVerifier) -> None:
    rng = np.random.default_rng(2)
    weights = EncoderWeights(
        rng.standard_normal((24, 64), np.float32), np.ones(24, np.float32), 1e-6, (1, 0)
    )
    encoder = ContextEncoder(weights)
    restorer = RestorerSpec(RestorerKind.PROJECTION, "random", "0" * 64, 24)
    spec = caches.restored(3, 16, restorer)
    shape = verifier.evicted_shape(caches.restored(3, 16))
    store = VectorStore(
        SegmentStore(shape, ARCHIVE, MlxKernels(shape.dtype), verifier.pool), restorer, encoder
    )
    cache = verifier.allocate(spec, store)
    assert cache.memory_bytes == verifier.bytes_needed(spec)
    features: list[np.ndarray] = []
    forked: ArrayCache | None = None
    for first in range(0, 90, 9):
        feed = Feed(cache, caches.HISTORY[first : first + 9], want_logits=False, taps=(1, 0))
        (output,) = verifier.forward_batch([feed])
        assert output.features is not None
        features.append(output.features)
        if first == 45:
            forked = cache.fork(54)
    expected = encoder.encode(np.concatenate(features))
    assert sorted(store.vectors) == list(range(3, store.length))
    assert store.length >= 90 - 16
    for position, vector in store.vectors.items():
        assert vector.tobytes() == expected[position].tobytes(), position
    assert forked is not None
    assert forked.encoder is encoder
    caches.run(verifier, forked, caches.HISTORY[54:80], [9])
    assert isinstance(forked.evicted, VectorStore)
    vectors = forked.evicted.vectors
    assert all(vectors[at].tobytes() == expected[at].tobytes() for at in range(3, 60))
    wrong = ContextEncoder(EncoderWeights(weights.fc, weights.norm, 1e-6, (0, 9)))
    with pytest.raises(TrainedForAnother, match="layers"):
        verifier.allocate(spec, VectorStore(store._store, restorer, wrong))


def test_a_store_that_is_full_refuses_and_leaves_the_cache_as_it_was(verifier: MlxVerifier) -> None:
    tokens = caches.HISTORY[:340]
    straight = caches.run(verifier, verifier.allocate(caches.restored()), tokens, [16])
    cache = verifier.allocate(caches.restored())
    caches.run(verifier, cache, tokens[:200], [16])
    verifier._evicted_pool.budget_bytes = verifier._evicted_pool.used_bytes
    with pytest.raises(OutOfKvMemory):
        caches.run(verifier, cache, tokens[200:], [16])
    verifier._evicted_pool.budget_bytes = None
    kept = cache.length
    assert 200 <= kept < 332
    assert caches.run(verifier, cache, tokens[kept:], [16]).tobytes() == straight[kept:].tobytes()
