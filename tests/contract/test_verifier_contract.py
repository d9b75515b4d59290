"""What every verifier does, whatever computes it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import WIDTH, CompiledVerifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import BadParameters, ContextExceeded, TokenOutOfVocabulary
from scripts.support.recomputing import RecomputingVerifier
from tests.support.breadth import wide
from tests.support.forwards import logits_of

HISTORY = [(11 * index + index * index // 7) % 96 for index in range(150)]
"""Past every ring of the suite: the longest has 128 slots."""
SPANS = (
    *((0, 18, 1), (18, 46, 7), (46, 52, 1), (52, 62, 10), (62, 68, 1)),
    *((68, 80, 12), (80, 88, 1), (88, 124, 12), (124, 150, 1)),
)
"""First, end and size of blocks: one at a time where sinks, windows, rings and tiles end."""


def test_the_card_of_the_model(verifier: Verifier) -> None:
    info = verifier.info
    assert (info.model_id, info.architecture) == ("random", "Qwen3ForCausalLM")
    assert (info.vocabulary_size, info.context_length) == (96, 1024)
    assert info.width == (WIDTH if isinstance(verifier, CompiledVerifier) else 16)
    # 2 layers of keys and values with 2 heads of float32 each; vectors divide the larger ones.
    head = 16 if info.hidden_size == 32 else 32
    assert info.kv_bytes_per_token == 2 * 2 * 2 * head * 4
    assert len(info.weights_digest) == len(info.tokenizer_digest) == 64


def test_logits_come_when_wanted_one_row_a_token(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    for count in (1, 7, 16):
        logits = logits_of(verifier, cache, HISTORY[:count])
        assert logits.shape == (count, 96)
        assert logits.dtype == np.float32
        assert np.isfinite(logits).all()
    assert verifier.forward(cache, [1], want_logits=False) is None


BAD_TOKENS: list[tuple[list[int], type[Exception]]] = [
    ([], BadParameters),
    ([1] * 2000, BadParameters),
    ([1, 96], TokenOutOfVocabulary),
    ([-1], TokenOutOfVocabulary),
    ([1 << 40], TokenOutOfVocabulary),
]


def test_bad_tokens_are_refused_with_nothing_written(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    verifier.forward(cache, HISTORY[:10], want_logits=False)
    untouched = cache.fork(cache.length)
    for tokens, error in BAD_TOKENS:
        with pytest.raises(error):
            verifier.forward(cache, tokens, want_logits=True)
        assert cache.length == 10
    got = logits_of(verifier, cache, HISTORY[10:12])
    assert np.array_equal(got, logits_of(verifier, untouched, HISTORY[10:12]))


def test_the_positions_of_the_model_are_a_limit_for_every_cache(
    verifier: Verifier, spec: CacheSpec
) -> None:
    cache = verifier.allocate(spec)
    limit = min(verifier.info.context_length, spec.capacity or verifier.info.context_length)
    cache.fill(limit - 5, seed=1)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1] * 6, want_logits=False)
    assert cache.length == limit - 5
    verifier.forward(cache, [1] * 4, want_logits=False)
    # The last position is usable: the rows that fill up the forward are at none.
    logits = logits_of(verifier, cache, [2])
    assert cache.length == limit
    assert np.isfinite(logits).all()
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1], want_logits=False)


@pytest.fixture(scope="module")
def single_steps(verifier: Verifier, spec: CacheSpec) -> Logits:
    """The logits of `HISTORY`, one token a forward wherever what is seen changes its place."""
    cache = verifier.allocate(spec)
    return np.concatenate(
        [
            logits_of(verifier, cache, HISTORY[first : first + size])
            for start, end, size in SPANS
            for first in range(start, end, size)
        ]
    )


@pytest.mark.parametrize("seed", [0, wide(1)])
def test_logits_are_a_function_of_the_history_bit_for_bit(
    verifier: Verifier, spec: CacheSpec, single_steps: Logits, seed: int
) -> None:
    rng = random.Random(seed)
    cache = verifier.allocate(spec)
    width = min(verifier.info.width, cache.widest)
    while cache.length < len(HISTORY):
        start = cache.length
        right = HISTORY[start : start + rng.randint(1, width)]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, width - len(right)))]
        got = logits_of(verifier, cache, right + wrong)
        kept = start + len(right)
        cache.truncate(kept)
        expected = single_steps[start:kept]
        assert got[: len(right)].tobytes() == expected.tobytes(), f"seed {seed}, at {start}"


@pytest.mark.parametrize("seed", [0, wide(1)])
def test_sessions_that_share_a_forward_get_the_bits_that_each_gets_alone(
    verifier: Verifier, spec: CacheSpec, single_steps: Logits, seed: int
) -> None:
    rng = random.Random(seed)
    feeds: list[Feed] = []
    for start in (0, rng.randint(1, 40), rng.randint(41, 100), rng.randint(101, 130)):
        cache = verifier.allocate(spec)
        for first in range(0, start, 16):
            block = HISTORY[first : min(start, first + 16)]
            verifier.forward(cache, block, want_logits=False)
        tokens = HISTORY[start : start + rng.randint(1, 10)]
        room = verifier.row_counts[-1] - sum(len(feed.token_ids) for feed in feeds)
        if len(tokens) <= room:
            feeds.append(Feed(cache, tokens, rng.random() < 0.7))
    starts = [feed.cache.length for feed in feeds]
    for feed, output, start in zip(feeds, verifier.forward_batch(feeds), starts, strict=True):
        end = start + len(feed.token_ids)
        assert feed.cache.length == end
        assert (output.logits is not None) == feed.want_logits
        assert output.features is None
        if output.logits is not None:
            assert output.logits.tobytes() == single_steps[start:end].tobytes(), seed
        rest = logits_of(verifier, feed.cache, HISTORY[end : end + 3])
        assert rest.tobytes() == single_steps[end : end + 3].tobytes(), seed
        feed.cache.release()


def test_a_bad_feed_costs_the_others_nothing(verifier: Verifier, spec: CacheSpec) -> None:
    good, bad = verifier.allocate(spec), verifier.allocate(spec)
    for cache in (good, bad):
        verifier.forward(cache, HISTORY[:10], want_logits=False)
    for tokens, error in (([1, 96], TokenOutOfVocabulary), ([], BadParameters)):
        with pytest.raises(error):
            verifier.forward_batch([Feed(good, [3], True), Feed(bad, tokens, True)])
    with pytest.raises(BadParameters, match="same cache"):
        verifier.forward_batch([Feed(good, [3], True), Feed(good, [4], True)])
    # The final norm stands behind the layers, for who wants no logits.
    for wants, tap in ((True, 2), (False, 3), (False, -1)):
        with pytest.raises(BadParameters, match="taps"):
            verifier.forward_batch([Feed(good, [3], wants, (tap,))])
    assert (good.length, bad.length) == (10, 10)
    got = logits_of(verifier, good, HISTORY[10:12])
    assert np.array_equal(got, logits_of(verifier, bad, HISTORY[10:12]))


def test_taps_are_the_outputs_of_layers_and_do_not_depend_on_the_cut(
    verifier: Verifier, spec: CacheSpec
) -> None:
    whole, single = verifier.allocate(spec), verifier.allocate(spec)
    output = verifier.forward_batch([Feed(whole, HISTORY[:9], False, (1, 0))])[0]
    assert output.logits is None
    assert output.features is not None
    assert output.features.shape == (9, 2, verifier.info.hidden_size)
    assert output.features.dtype == np.float32
    assert not np.array_equal(output.features[:, 0], output.features[:, 1])
    for position in range(9):
        feed = Feed(single, HISTORY[position : position + 1], True, (0, 1))
        features = verifier.forward_batch([feed])[0].features
        assert features is not None
        assert np.array_equal(features[0, ::-1], output.features[position])


def test_row_counts_can_be_narrowed_and_change_no_bits(
    verifier: Verifier, spec: CacheSpec, single_steps: Logits
) -> None:
    loaded = verifier.row_counts
    assert loaded == tuple(sorted(set(loaded)))
    assert loaded[-1] >= verifier.info.width
    try:
        verifier.use_row_counts([count for count in loaded if count >= verifier.info.width])
        cache = verifier.allocate(spec)
        for first in range(0, 48, 3):
            got = logits_of(verifier, cache, HISTORY[first : first + 3])
            assert got.tobytes() == single_steps[first : first + 3].tobytes()
        for wrong in ([3], [], [1 << 20]):
            with pytest.raises(BadParameters, match="row counts"):
                verifier.use_row_counts(wrong)
    finally:
        verifier.use_row_counts(loaded)


def test_recomputing_the_history_gives_the_bits_of_the_cache(
    verifier: Verifier, specs: dict[str, CacheSpec]
) -> None:
    oracle = RecomputingVerifier(verifier)
    spec = specs["sink_window"]
    kept = verifier.allocate(spec)
    expected = np.concatenate([logits_of(verifier, kept, [token]) for token in HISTORY[:30]])
    used = verifier.pool.used_bytes
    cache = oracle.allocate(spec)
    assert oracle.info == verifier.info
    for count in (5, 16, 1, 7):
        start = cache.length
        got = logits_of(oracle, cache, HISTORY[start : start + count])
        assert got.tobytes() == expected[start : start + count].tobytes()
        cache.truncate(start + (count + 1) // 2)
    fork = cache.fork(3)
    got = logits_of(oracle, fork, HISTORY[3:5])
    assert got.tobytes() == expected[3:5].tobytes()
    assert (cache.memory_bytes, verifier.pool.used_bytes) == (0, used)
    with pytest.raises(ValueError, match="cannot keep"):
        cache.truncate(0)
    with pytest.raises(TokenOutOfVocabulary):
        oracle.forward_batch([Feed(fork, [3, 4], True), Feed(cache, [96], True)])
    with pytest.raises(BadParameters, match="same cache"):
        oracle.forward_batch([Feed(fork, [3], True), Feed(fork, [4], True)])
    assert fork.length == 5


def test_memory_that_forks_wrote_and_gave_back_is_like_new(
    verifier: Verifier, spec: CacheSpec, single_steps: Logits
) -> None:
    used = verifier.pool.used_bytes
    for _ in range(3):
        cache = verifier.allocate(spec)
        verifier.forward(cache, HISTORY[:16], want_logits=False)
        fork = cache.fork(cache.length)
        for either in (cache, fork):
            got = logits_of(verifier, either, HISTORY[16:24])
            assert got.tobytes() == single_steps[16:24].tobytes()
        cache.release()
        fork.release()
        assert verifier.pool.used_bytes == used


def test_fewer_layers_have_the_same_shapes_and_a_pool_of_their_own(verifier: Verifier) -> None:
    shallow = verifier.shallow()
    assert 1 <= shallow.info.layer_count <= verifier.info.layer_count
    assert shallow.info.vocabulary_size == verifier.info.vocabulary_size
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
    used = verifier.pool.used_bytes
    cache, whole = shallow.allocate(spec), verifier.allocate(spec)
    assert cache.memory_bytes == shallow.bytes_needed(spec)
    assert verifier.pool.used_bytes == used + whole.memory_bytes
    before = logits_of(verifier, whole, HISTORY[:4])
    logits = logits_of(shallow, cache, HISTORY[:4])
    assert logits.shape == before.shape
    assert not np.array_equal(logits, before)
    whole.truncate(0)
    assert np.array_equal(logits_of(verifier, whole, HISTORY[:4]), before)
    whole.release()
