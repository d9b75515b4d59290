"""What every verifier does, whatever computes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache import CacheKind, CacheSpec
from engine.errors import BadParameters, ContextExceeded, TokenOutOfVocabulary
from engine.verifier import Logits, Verifier

HISTORY = [(11 * index + index * index // 7) % 96 for index in range(320)]
"""Twenty times the sink and window of the suite's `sink_window`."""


def test_the_card_of_the_model(verifier: Verifier) -> None:
    info = verifier.info
    assert (info.model_id, info.architecture) == ("random", "Qwen3ForCausalLM")
    assert (info.vocabulary_size, info.context_length, info.width) == (96, 1024, 16)
    # 2 layers of keys and values with 2 heads of 16 float32 each.
    assert info.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert len(info.weights_digest) == len(info.tokenizer_digest) == 64


def test_logits_come_when_wanted_one_row_a_token(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    for count in (1, 7, 16):
        logits = verifier.forward(cache, HISTORY[:count], want_logits=True)
        assert logits is not None
        assert logits.shape == (count, 96)
        assert logits.dtype == np.float32
        assert np.isfinite(logits).all()
    assert verifier.forward(cache, [1], want_logits=False) is None


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([], BadParameters),
        ([1] * 17, BadParameters),
        ([1, 96], TokenOutOfVocabulary),
        ([-1], TokenOutOfVocabulary),
        ([1 << 40], TokenOutOfVocabulary),
    ],
)
def test_bad_tokens_are_refused_with_nothing_written(
    verifier: Verifier, spec: CacheSpec, tokens: list[int], error: type[Exception]
) -> None:
    cache = verifier.allocate(spec)
    verifier.forward(cache, HISTORY[:10], want_logits=False)
    untouched = verifier.clone(cache)
    with pytest.raises(error):
        verifier.forward(cache, tokens, want_logits=True)
    assert cache.length == 10
    got = verifier.forward(cache, HISTORY[10:12], want_logits=True)
    assert np.array_equal(got, verifier.forward(untouched, HISTORY[10:12], want_logits=True))


def test_the_positions_of_the_model_are_a_limit_for_every_cache(
    verifier: Verifier, spec: CacheSpec
) -> None:
    cache = verifier.allocate(spec)
    limit = min(verifier.info.context_length, spec.capacity or verifier.info.context_length)
    while cache.length + 16 <= limit:
        verifier.forward(cache, HISTORY[:16], want_logits=False)
    rest = limit - cache.length
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1] * (rest + 1), want_logits=False)
    assert cache.length == limit - rest
    if rest:
        verifier.forward(cache, [1] * rest, want_logits=False)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1], want_logits=False)


def test_the_last_position_is_usable_with_padding_rows(verifier: Verifier) -> None:
    cache = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=2))
    for first in range(0, 1008, 16):
        verifier.forward(cache, [first % 96] * 16, want_logits=False)
    verifier.forward(cache, [1] * 15, want_logits=False)
    logits = verifier.forward(cache, [2], want_logits=True)
    assert cache.length == 1024
    assert np.isfinite(logits).all()


@pytest.fixture(scope="module")
def single_steps(verifier: Verifier, spec: CacheSpec) -> Logits:
    """The logits of `HISTORY`, one token a forward."""
    cache = verifier.allocate(spec)
    return np.concatenate([verifier.forward(cache, [token], want_logits=True) for token in HISTORY])


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 15)), min_size=1, max_size=20))
def test_logits_are_a_function_of_the_history_bit_for_bit(
    verifier: Verifier, spec: CacheSpec, single_steps: Logits, cuts: list[tuple[int, int]]
) -> None:
    """`cuts`: right and then rejected tokens of each forward, over and over."""
    cache = verifier.allocate(spec)
    for right, wrong in itertools.cycle(cuts):
        start = cache.length
        chunk = HISTORY[start : start + right]
        if not chunk:
            break
        rejected = [95 - token for token in HISTORY[start : start + wrong]][: 16 - len(chunk)]
        got = verifier.forward(cache, chunk + rejected, want_logits=True)
        kept = start + len(chunk)
        cache.truncate(kept)
        assert got[: len(chunk)].tobytes() == single_steps[start:kept].tobytes(), start
