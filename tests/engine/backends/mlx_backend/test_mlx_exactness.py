"""MLX: bits that depend on the history alone, and memory that is what it says.

What these tests see is MLX on the CPU. On a Mac the same tests run Metal's
kernels, which nobody has done yet: there rows of different forwards may round
differently, and `engine.verifiers.exactness` has to choose among the row counts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.kv.chunks import Run
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.exactness import Exactness, settle
from scripts.train.tiny_families import GEMMA4_26B
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.attention import segment_attention

Result = TypeVar("Result")

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=600)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(300)]

MODELS: dict[str, dict[str, object]] = {
    "llama bfloat16": {"architecture": "LlamaForCausalLM", "dtype": "bfloat16"},
    "gemma3 float32": {"architecture": "Gemma3ForCausalLM"},
    "gemma4 bfloat16": {"architecture": "Gemma4ForCausalLM", "dtype": "bfloat16"},
    "experts float32": {"architecture": GEMMA4_26B},
    "experts bfloat16": {"architecture": "MixtralForCausalLM", "dtype": "bfloat16"},
    "qwen3.5 float32": {"architecture": "Qwen3_5ForCausalLM"},
    "qwen3.5 bfloat16": {"architecture": "Qwen3_5ForCausalLM", "dtype": "bfloat16"},
    # Nothing divides anything, and each group has one head.
    "odd": {"intermediate_size": 27, "num_attention_heads": 3, "num_key_value_heads": 3},
}
# Each dtype and each kind of layer meets both: a model alone need not.
IN_FULL = {"experts float32", "llama bfloat16", "gemma3 float32", "qwen3.5 bfloat16"}
KEPT = {"llama bfloat16", "gemma4 bfloat16", "experts float32", "qwen3.5 float32"}


def of_models(*kept: str) -> pytest.MarkDecorator:
    """A test whose other models are wide."""
    cases = all_wide_but(kept, sorted(MODELS))
    return pytest.mark.parametrize("model", cases, indirect=True, scope="module")


@pytest.fixture(scope="module", params=all_wide_but(KEPT.__contains__, sorted(MODELS)))
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def spec(model: str) -> CacheSpec:
    return FULL if model in IN_FULL else RING


@pytest.fixture(scope="module")
def verifier(model: str, random_checkpoint: Callable[..., Path]) -> Verifier:
    options = dict(MODELS[model])
    dtype = str(options.pop("dtype", "float32"))
    path = random_checkpoint(str(options.pop("architecture", "Qwen3ForCausalLM")), **options)
    return load_verifier(ModelFolder(path, "random"), backend="mlx", dtype=dtype)


@pytest.fixture(scope="module")
def straight(spec: CacheSpec, verifier: Verifier) -> tuple[KvCache, np.ndarray]:
    """A cache, and the logits of what follows in `HISTORY`, taken one token at a time.

    The ring's is three times its sink and window; behind full attention it is what
    lies around 256, where a second segment begins.
    """
    start, end = (0, 48) if spec is RING else (244, 274)
    cache = filled(verifier, spec, start)
    single = cache.fork(start)
    rows = [logits_of(verifier, single, [token]) for token in HISTORY[start:end]]
    return cache, np.concatenate(rows)


# A seed, not a list of cuts: the first of those that Hypothesis tries is of single tokens alone.
@settings(deadline=None, max_examples=2)
@given(seed=st.integers(0, 2**32 - 1))
def test_logits_are_the_same_however_the_history_is_cut(
    verifier: Verifier,
    straight: tuple[KvCache, np.ndarray],
    seed: int,
) -> None:
    """In each forward some right tokens, and then some that are rejected."""
    note(f"seed {seed}")
    rng = random.Random(seed)
    before, expected = straight
    cache = before.fork(before.length)
    done = 0
    while done < len(expected):
        chunk = HISTORY[before.length : before.length + len(expected)][done:][: rng.randint(1, 16)]
        wrong = rng.randint(0, 16 - len(chunk))
        rejected = [95 - token for token in chunk * 16][:wrong]
        got = logits_of(verifier, cache, chunk + rejected)
        end = done + len(chunk)
        cache.truncate(before.length + end)
        assert got[: len(chunk)].tobytes() == expected[done:end].tobytes(), done
        done = end
    cache.release()


@of_models("llama bfloat16", "qwen3.5 float32")
def test_every_rung_of_rows_gives_the_same_bits(verifier: Verifier) -> None:
    """Each row count alone: what a machine is restricted to on which only that agrees."""
    counts = verifier.row_counts
    seen = []
    try:
        for count in (16, 64):
            verifier.use_row_counts([count])
            cache = verifier.allocate(FULL)
            seen.append(
                np.concatenate(
                    [
                        logits_of(verifier, cache, HISTORY[first : first + 7])
                        for first in range(0, 21, 7)
                    ]
                )
            )
    finally:
        verifier.use_row_counts(counts)
    cache = verifier.allocate(FULL)
    single = [logits_of(verifier, cache, [token]) for token in HISTORY[:21]]
    for rows in seen:
        assert rows.tobytes() == np.concatenate(single).tobytes()


def test_an_expert_multiplies_one_row_at_a_time(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: rows that are sorted by expert are in each other's products."""
    gather = mx.gather_mm
    seen: list[tuple[tuple[int, ...], object]] = []

    def seen_gather(rows: mx.array, *arguments: Any, **options: Any) -> mx.array:
        seen.append((rows.shape, options.get("sorted_indices")))
        return gather(rows, *arguments, **options)

    monkeypatch.setattr(mx, "gather_mm", seen_gather)
    path = random_checkpoint("Qwen3MoeForCausalLM")
    verifier = load_verifier(ModelFolder(path, "random"), backend="mlx")
    verifier.forward(verifier.allocate(FULL), HISTORY[:64], want_logits=False)
    # Three products a layer, of rows [1, 64, 1, 1, n] before and [1, 64, k, 1, n] after the gate.
    assert len(seen) == 3 * 2
    assert all(shape[:2] == (1, 64) and shape[-2] == 1 for shape, _ in seen)
    assert not any(is_sorted for _, is_sorted in seen)


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="found to be so on the CPU")
@pytest.mark.parametrize("dtype", all_wide_but(["bfloat16"], ["float32", "bfloat16"]))
def test_all_row_counts_agree_on_the_cpu(
    random_checkpoint: Callable[..., Path], dtype: str
) -> None:
    # Of positions behind a segment's border, and no more.
    path = random_checkpoint("Qwen3ForCausalLM", num_hidden_layers=1, max_position_embeddings=300)
    verifier = load_verifier(ModelFolder(path, "random"), backend="mlx", dtype=dtype)
    assert settle(verifier) == Exactness(
        exact=True, row_counts=(1, 2, 4, 8, 16, 32, 64), thread_count=0
    )
    assert verifier.pool.held_bytes == verifier.pool.reserved_bytes == 0


def test_a_fork_within_the_last_forward_is_as_if_it_had_ended_there(
    verifier: Verifier, spec: CacheSpec
) -> None:
    rng = random.Random(5)
    start = filled(verifier, spec, 48)
    for kept in (0, 1, 9):
        cache = start.fork(48)
        block = [rng.randrange(96) for _ in range(16)]
        verifier.forward(cache, block, want_logits=False)
        fork = cache.fork(48 + kept)
        straight = start.fork(48)
        if kept:
            verifier.forward(straight, block[:kept], want_logits=False)
        got = logits_of(verifier, fork, HISTORY[:5])
        assert np.array_equal(got, logits_of(verifier, straight, HISTORY[:5])), kept
        # And what was forked goes on as before.
        assert cache.length == 64
        whole = start.fork(48)
        verifier.forward(whole, block, want_logits=False)
        got = logits_of(verifier, cache, HISTORY[5:9])
        assert np.array_equal(got, logits_of(verifier, whole, HISTORY[5:9])), kept


def filled(verifier: Verifier, spec: CacheSpec, count: int) -> KvCache:
    cache = verifier.allocate(spec)
    for first in range(0, count, 16):
        verifier.forward(cache, HISTORY[first : min(first + 16, count)], want_logits=False)
    return cache


@of_models("llama bfloat16", "experts float32", "qwen3.5 float32")
def test_sessions_in_one_call_get_what_they_get_alone(verifier: Verifier) -> None:
    feeds, alone = [], []
    for count, start in ((1, 20), (7, 33), (3, 0)):
        for spec in (RING, FULL):
            tokens = HISTORY[start : start + count]
            feeds.append(Feed(filled(verifier, spec, start), tokens, want_logits=True))
            cache = filled(verifier, spec, start)
            alone.append(logits_of(verifier, cache, tokens))
    for output, expected in zip(verifier.forward_batch(feeds), alone, strict=True):
        assert output.logits is not None
        assert output.logits.tobytes() == expected.tobytes()


def test_calls_may_come_from_another_thread_than_the_loading(
    random_checkpoint: Callable[..., Path],
) -> None:
    for architecture in ("Gemma4ForCausalLM", "Qwen3_5ForCausalLM"):
        folder = ModelFolder(random_checkpoint(architecture), "random")
        verifier = in_thread(partial(load_verifier, folder, backend="mlx"))
        steps = partial(steps_with_rollback, verifier)
        expected = in_thread(steps)
        assert np.array_equal(in_thread(steps), expected)
        assert np.array_equal(steps(), expected)


def steps_with_rollback(verifier: Verifier) -> np.ndarray:
    cache = filled(verifier, RING, 40)
    cache.truncate(cache.length - 3)
    fork = cache.fork(cache.length)
    first = logits_of(verifier, fork, [1, 2, 3])
    return np.concatenate([first, logits_of(verifier, cache, [4])])


def in_thread(call: Callable[[], Result]) -> Result:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    (result,) = found
    return result


@of_models("llama bfloat16", "qwen3.5 float32")
def test_memory_is_what_the_allocator_gave(verifier: Verifier) -> None:
    for spec in (RING, FULL):
        filled(verifier, spec, 16).release()
        verifier.pool.budget_bytes = 0  # drops what is kept for the next taker
        verifier.pool.budget_bytes = None
        before = mx.get_active_memory()
        cache = verifier.allocate(spec)
        allocated = mx.get_active_memory() - before
        assert cache.memory_bytes == verifier.bytes_needed(spec)
        # The allocator rounds each array up.
        assert cache.memory_bytes <= allocated <= 1.2 * cache.memory_bytes + 16_384
        for tokens in blocks(HISTORY[:96], 16):
            verifier.forward(cache, tokens, want_logits=True)
        after = mx.get_active_memory() - before
        assert after <= 1.05 * allocated + 16_384
        assert cache.memory_bytes == verifier.bytes_needed(spec)
        cache.release()


def blocks(tokens: list[int], size: int) -> list[list[int]]:
    return [tokens[first : first + size] for first in range(0, len(tokens), size)]


def test_a_fork_takes_memory_when_it_is_written_and_not_before(
    random_checkpoint: Callable[..., Path],
) -> None:
    folder = ModelFolder(random_checkpoint("Qwen3ForCausalLM"), "random")
    verifier = load_verifier(folder, backend="mlx")
    original = filled(verifier, FULL, 300)
    one = verifier.bytes_needed(FULL)
    segment = one // 3
    pool = verifier.pool
    active = mx.get_active_memory()
    fork = original.fork(300)
    assert (pool.held_bytes, pool.reserved_bytes) == (one, 2 * segment)
    assert mx.get_active_memory() == active
    verifier.forward(fork, [1], want_logits=False)
    assert (pool.held_bytes, pool.reserved_bytes) == (one + segment, segment)
    assert segment <= mx.get_active_memory() - active <= 1.2 * segment + 16_384
    fork.release()
    assert (pool.held_bytes, pool.reserved_bytes) == (one, 0)
    pool.budget_bytes = one + segment
    with pytest.raises(OutOfKvMemory):
        original.fork(300)
    assert (pool.held_bytes, pool.reserved_bytes) == (one, 0)


def test_a_write_goes_into_the_memory_that_is_there(
    random_checkpoint: Callable[..., Path],
) -> None:
    path = random_checkpoint(
        "Qwen3ForCausalLM", num_hidden_layers=1, max_position_embeddings=1 << 16, head_dim=64
    )
    verifier = load_verifier(ModelFolder(path, "long"), backend="mlx")
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=1 << 16))
    verifier.forward(cache, [1], want_logits=True)
    mx.reset_peak_memory()
    active = mx.get_active_memory()
    segments = len(cache.slabs)
    assert segments > 60
    for token in range(4):
        verifier.forward(cache, [token], want_logits=True)
    # A copy of one segment's keys would be 128 KiB in each of 2 heads of 64.
    assert mx.get_peak_memory() - active < 256 * 64 * 2 * 4


@pytest.fixture(scope="module")
def long(random_checkpoint: Callable[..., Path]) -> Path:
    return random_checkpoint(
        "Qwen3ForCausalLM",
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1 << 19,
    )


@pytest.mark.parametrize("dtype", all_wide_but(["bfloat16"], ["float32", "bfloat16"]))
def test_a_history_that_begins_another_chunk_of_segments_is_exact(long: Path, dtype: str) -> None:
    verifier = load_verifier(ModelFolder(long, "long"), backend="mlx", dtype=dtype)
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=9000))
    cache.fill(CHUNK_KEYS - 10, seed=1)
    rows = []
    for block in (1, 5, 20):
        fork = cache.fork(cache.length)
        rows.append(
            np.concatenate(
                [logits_of(verifier, fork, tokens) for tokens in blocks(HISTORY[:20], block)]
            )
        )
    assert rows[0].tobytes() == rows[1].tobytes() == rows[2].tobytes()


def test_chunks_of_segments_are_merged_into_one_softmax() -> None:
    rng = np.random.default_rng(3)
    sizes = (256, 512, 256, 1024)
    query = rng.standard_normal((1, 4, 3, 16))
    keys, values = rng.standard_normal((2, 2, sum(sizes), 16))
    # Query 0 sees nothing of the first chunk, query 1 nothing of the last.
    bias = np.zeros((3, sum(sizes)))
    bias[0, :768] = bias[1, 1024:] = -np.inf
    scores = np.einsum("ghqd,gkd->ghqk", query.reshape(2, 2, 3, 16), keys) * 0.25 + bias
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("ghqk,gkd->ghqd", weights, values) / weights.sum(-1, keepdims=True)
    borders = np.cumsum(sizes)[:-1]

    def parts(numbers: np.ndarray, axis: int) -> tuple[mx.array, ...]:
        split = np.split(numbers, borders, axis=axis)
        return tuple(mx.array(part.astype(np.float32)) for part in split)

    chunks = ((Run(0, 1, 256), Run(1, 2, 512)), (Run(2, 3, 256), Run(3, 4, 1024)))
    segments = FeedSegments(
        Masks(0, 3, 3, chunks, parts(np.tile(bias, (2, 1)), 1)),
        parts(keys, 1),
        parts(values, 1),
    )
    got = segment_attention(mx.array(query.astype(np.float32)), segments, 0.25)
    assert np.abs(np.array(got) - expected.reshape(1, 4, 3, 16)).max() < 1e-5


def test_the_peak_of_a_forward_does_not_grow_with_the_history(long: Path) -> None:
    # Of more chunks than MLX's scheduler holds at once, which varies by what else the machine does:
    # with three their peak was at times that of fewer.
    verifier = load_verifier(ModelFolder(long, "long"), backend="mlx")
    peaks = []
    for filled_count in (12 * CHUNK_KEYS, 48 * CHUNK_KEYS):
        cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=filled_count + 64))
        cache.fill(filled_count, seed=1)
        mx.reset_peak_memory()
        active = mx.get_active_memory()
        verifier.forward(cache, HISTORY[:16], want_logits=True)
        peaks.append(mx.get_peak_memory() - active)
        cache.release()
    assert peaks[1] < 1.4 * peaks[0], peaks
