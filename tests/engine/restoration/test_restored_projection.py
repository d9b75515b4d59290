"""Keys and values made of context vectors: a function of the history, whatever it came in."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.dtypes import from_raw, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.projecting import projecting_store
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
)
from kakeya_fleet.engine.backends.torch_backend.threads import TorchThreads
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.feature_encoder import (
    ContextEncoder,
    EncoderWeights,
    PairedProducts,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import BadParameters, RestorerRefused, TrainedForAnother
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.narrowed_encoder import NarrowedEncoder
from tests.support import evicted_stores
from tests.support import restored_caches as caches
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of

WIDTH, HIDDEN, TAPS = 24, 32, (0, 1)
LENGTH = 80
SPANS = ((0, 16, 8), (16, 24, 1), (24, 60, 9), (60, 68, 1), (68, LENGTH, 6))
"""One at a time where they are past sink and window, and where the ring goes round."""


class Case(NamedTuple):
    """What a map is of."""

    dtype: str
    family: str
    source: Source
    rank: int

    @property
    def deposited(self) -> int:
        """A map of a rank from context vectors is deposited in so many numbers."""
        return self.rank if self.rank and self.source is Source.FEATURES else WIDTH

    @property
    def restorer(self) -> RestorerSpec:
        return RestorerSpec(RestorerKind.PROJECTION, "random", "0" * 64, self.deposited)


# Each pair of a dtype, a family and a source. Of Gemma 4 one layer's keys are restored, for
# itself and for another that shares them.
CASES = (
    Case("float32", "Qwen3ForCausalLM", Source.FEATURES, 16),
    Case("bfloat16", "Qwen3ForCausalLM", Source.KEYS_VALUES, 16),
    Case("float32", "Gemma4ForCausalLM", Source.KEYS_VALUES, 0),
    Case("bfloat16", "Gemma4ForCausalLM", Source.FEATURES, 0),
)


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param
    return made


@pytest.fixture(scope="module")
def verifier(case: Case, random_checkpoint: Callable[..., Path]) -> Verifier:
    folder = ModelFolder(random_checkpoint(case.family), "random")
    return load_verifier(folder, dtype=case.dtype)


@pytest.fixture(scope="module")
def spec(case: Case) -> CacheSpec:
    made: CacheSpec = caches.restored(3, 16, case.restorer)
    return made


@pytest.fixture(scope="module")
def encoder() -> ContextEncoder:
    rng = np.random.default_rng(2)
    fc = rng.standard_normal((WIDTH, len(TAPS) * HIDDEN), np.float32) / np.float32(8)
    norm = np.float32(1) + rng.standard_normal(WIDTH, np.float32) / np.float32(8)
    return ContextEncoder(EncoderWeights(fc, norm, 1e-6, TAPS))


def random_projection(shape: EvictedShape, encoder: ContextEncoder, case: Case) -> Projection:
    layers = [shape.group_of[layer].shape for layer in sorted(shape.group_of)]
    config = ProjectionConfig(
        source=case.source,
        width=WIDTH,
        rank=case.rank,
        layers=tuple(RestoredLayer(layer.kv_heads, layer.head_dim, True) for layer in layers),
        norm_eps=1e-6,
        rotary_scaling=1.0,
        verifier_model_id="random",
        verifier_digest="0" * 64,
        encoder_digest=encoder.spec.digest,
        drafter_layers=2,
        drafter_kv_heads=2,
        drafter_head_dim=8,
    )
    torch.manual_seed(4)
    projection = Projection(config)
    with torch.no_grad():
        projection.inverse_frequencies.copy_(torch.rand(layers[0].head_dim // 2))
        projection.up.weight.normal_(std=0.5)
    return projection.requires_grad_(requires_grad=False).eval()


@pytest.fixture(scope="module")
def projection(
    case: Case, verifier: Verifier, spec: CacheSpec, encoder: ContextEncoder
) -> Projection:
    return random_projection(verifier.evicted_shape(spec), encoder, case)


@pytest.fixture(scope="module")
def given(case: Case, encoder: ContextEncoder, projection: Projection) -> FeatureEncoder:
    """What makes what is deposited."""
    if case.deposited == WIDTH:
        return encoder
    assert projection.down is not None
    return NarrowedEncoder(encoder, PairedProducts(projection.down.weight.numpy()), case.deposited)


@pytest.fixture
def allocate(
    case: Case,
    verifier: Verifier,
    spec: CacheSpec,
    given: FeatureEncoder,
    projection: Projection,
) -> Callable[[], KvCache]:
    def make() -> KvCache:
        shape = verifier.evicted_shape(spec)
        store = projecting_store(shape, case.restorer, kv_pool(), projection, given)
        return verifier.allocate(spec, store)

    return make


# The last case has no value that no other has.
@pytest.mark.parametrize("case", all_wide_but(CASES[:-1], CASES), indirect=True, ids=str)
def test_the_history_alone_decides(verifier: Verifier, allocate: Callable[[], KvCache]) -> None:
    tokens = caches.HISTORY[:LENGTH]
    straight = allocate()
    expected = np.concatenate(
        [caches.run(verifier, straight, tokens[a:b], [size]) for a, b, size in SPANS]
    )
    for sizes in ([16], [1, 3, 16, 5]):
        assert caches.run(verifier, allocate(), tokens, sizes).tobytes() == expected.tobytes()
    # With rejected drafts, forks in the middle, and another session in the same forward.
    rng = random.Random(1)
    cache, beside = allocate(), verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=400))
    # How many rows a forward may have is found on the machine.
    widest = min(16, verifier.row_counts[-1] - 2)
    while cache.length < LENGTH:
        start = cache.length
        right = tokens[start : start + rng.randint(1, widest)]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, widest - len(right)))]
        feed = Feed(cache, right + wrong, want_logits=True, taps=(1,))
        other, output = verifier.forward_batch([Feed(beside, [5, 6], want_logits=False), feed])
        assert other.features is None
        assert output.features is not None
        assert output.features.shape == (len(right + wrong), 1, HIDDEN)
        cache.truncate(start + len(right))
        assert output.logits is not None
        rows = expected[start : start + len(right)]
        assert output.logits[: len(right)].tobytes() == rows.tobytes()
        if rng.random() < 0.4:
            cache, source = cache.fork(cache.length), cache
            caches.run(verifier, source, [3] * 40, [16])
            source.release()
    # It is no full attention: the map is random.
    full = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=400))
    assert np.abs(caches.run(verifier, full, tokens, [16]) - expected)[60:].max() > 0.1


def test_its_vectors_are_counted(
    case: Case, verifier: Verifier, spec: CacheSpec, allocate: Callable[[], KvCache]
) -> None:
    before = verifier.pool.used_bytes
    cache, plain = allocate(), verifier.allocate(caches.restored(3, 16))
    slots = 64
    assert cache.memory_bytes == verifier.bytes_needed(spec)
    assert cache.memory_bytes == plain.memory_bytes + slots * case.deposited * 4
    assert sum(slab.nbytes for slab in cache.slabs) == cache.memory_bytes
    caches.run(verifier, cache, caches.HISTORY[:100], [16])
    assert cache.memory_bytes == verifier.bytes_needed(spec)
    used = verifier.pool.used_bytes
    needed = cache.fork_bytes(100)
    fork = cache.fork(100)
    assert verifier.pool.used_bytes == used + needed
    for one in (fork, cache, plain):
        freed, held = one.freed_bytes, verifier.pool.used_bytes
        one.release()
        assert verifier.pool.used_bytes == held - freed
    assert verifier.pool.used_bytes == before


def test_a_filled_cache_is_as_one_that_has_read(
    verifier: Verifier, allocate: Callable[[], KvCache]
) -> None:
    cache = allocate()
    cache.fill(300, seed=1)
    assert cache.evicted is not None
    assert cache.evicted.length == 300 - 16
    logits = logits_of(verifier, cache, [1, 2, 3])
    assert np.isfinite(logits).all()


def test_a_positions_keys_do_not_depend_on_the_cut_of_deposits(
    case: Case, verifier: Verifier, spec: CacheSpec, projection: Projection
) -> None:
    shape = verifier.evicted_shape(spec)
    width = case.deposited
    vectors = np.random.default_rng(0).standard_normal((60, width), np.float32)
    whole = projecting_store(shape, case.restorer, kv_pool(), projection)
    whole.deposit(3, vectors)
    for cut in (1, 5, 16, 40):
        parted = projecting_store(shape, case.restorer, kv_pool(), projection)
        for first in range(0, 60, cut):
            parted.deposit(3 + first, vectors[first : first + cut])
        for one, other in zip(whole._groups, parted._groups, strict=True):
            assert np.array_equal(one.positions(3, 63), other.positions(3, 63)), cut
    # And they are the map's, at their own positions.
    made = projection.restored(torch.from_numpy(vectors), torch.arange(3, 63))
    numbers = whole._groups[0].positions(3, 63)
    first_group = from_raw(numbers, torch_dtype(shape.dtype)).float()
    tolerance = 1e-4 if shape.dtype == "float32" else 0.1
    assert torch.allclose(first_group[0, 0], made[0][0], atol=tolerance)
    assert torch.allclose(first_group[0, 1], made[0][1], atol=tolerance)


def test_threads_that_round_the_map_otherwise_are_refused_with_the_mend(
    case: Case,
    verifier: Verifier,
    spec: CacheSpec,
    projection: Projection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = verifier.evicted_shape(spec)
    honest = projection.restored

    def of_threads(vectors: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        factor = 1.5 if torch.get_num_threads() == 2 else 1.0
        return [(keys * factor, values) for keys, values in honest(vectors, positions)]

    monkeypatch.setattr(projection, "restored", of_threads)
    store = projecting_store(shape, case.restorer, kv_pool(), projection)
    vectors = np.random.default_rng(0).standard_normal((3, case.deposited), np.float32)

    def deposit(threads: int) -> int:
        TorchThreads().use(threads)
        store.deposit(max(store.length, shape.sink), vectors)
        return store.length

    with ThreadPoolExecutor(1) as worker:
        with pytest.raises(RestorerRefused, match="OMP_NUM_THREADS=1"):
            worker.submit(deposit, 2).result()
        assert store.length == 0
        assert worker.submit(deposit, 1).result() == worker.submit(deposit, 3).result() - 3
    store.release()


def test_what_cannot_be_mapped_is_refused(
    case: Case, verifier: Verifier, spec: CacheSpec, projection: Projection
) -> None:
    shape = verifier.evicted_shape(spec)
    store = projecting_store(shape, case.restorer, kv_pool(), projection)
    vectors = np.ones((5, case.deposited), np.float32)
    broken = vectors.copy()
    broken[3, 2] = np.nan
    huge = vectors * np.float32(3e38)
    narrow = vectors[:, :-1]
    keys = evicted_stores.random_evicted(evicted_stores.small_shape(), 5, seed=0)
    for bad in (broken, huge, narrow, vectors[:0], keys):
        with pytest.raises(RestorerRefused):
            store.deposit(3, bad)
        assert (store.length, store.stored_bytes) == (0, 0)
    store.deposit(3, vectors)
    assert store.length == 8


def test_a_map_of_another_pair_is_named(
    case: Case,
    verifier: Verifier,
    spec: CacheSpec,
    encoder: ContextEncoder,
    projection: Projection,
) -> None:
    shape = verifier.evicted_shape(spec)
    weights = EncoderWeights(encoder.weights.fc * 2, encoder.weights.norm, 1e-6, TAPS)
    with pytest.raises(TrainedForAnother):
        projecting_store(shape, case.restorer, kv_pool(), projection, ContextEncoder(weights))
    small = EvictedShape(
        shape.groups, shape.dtype, shape.sink, shape.window, shape.context_length, shape.width - 1
    )
    with pytest.raises(TrainedForAnother):
        projecting_store(small, case.restorer, kv_pool(), projection, encoder)
    without_encoder = TorchEvictedStore(shape, case.restorer, kv_pool())
    with pytest.raises(BadParameters, match="encoder"):
        verifier.allocate(spec, without_encoder)
    for fc, taps in (
        (encoder.weights.fc, (0, verifier.info.layer_count)),
        (encoder.weights.fc[:, :HIDDEN].copy(), TAPS),
    ):
        of_another = ContextEncoder(EncoderWeights(fc, encoder.weights.norm, 1e-6, taps))
        store = TorchEvictedStore(shape, case.restorer, kv_pool(), encoder=of_another)
        with pytest.raises(TrainedForAnother):
            verifier.allocate(spec, store)
    for restorer in (
        RestorerSpec(RestorerKind.PROJECTION, "random"),
        RestorerSpec(RestorerKind.ARCHIVE, width=WIDTH),
    ):
        with pytest.raises(BadParameters, match="vectors"):
            verifier.bytes_needed(
                CacheSpec(CacheKind.RESTORED, sink=3, window=16, restorer=restorer)
            )
