"""Every family: a restored cache attends to all of the history, and the history alone decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import BadParameters, KvStrategyUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from scripts.support.recomputing import RecomputingVerifier
from tests.support import restored_caches as caches

# Besides Mistral's, where no layer sees all of the history.
FAMILIES: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    # Its sliding layers see 24 positions: more than the window, less than sink and window.
    "Gemma3ForCausalLM": {},
    "Gemma4ForCausalLM": {},
    "Qwen3_5ForCausalLM": {},
}
TOLERANCE = {"Gemma4ForCausalLM": 5e-5}
"""Of the largest logit, 2e-6 for the others. Gemma 4 in the library's own caches: up to 2e-5."""
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=500)
WINDOWS = ((0, 1), (5, 3), (0, 21))
LONG = 70
SINGLE = 105
"""No multiple of a block: behind it blocks of 16 lie otherwise than from the start."""


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def verifier(family: str, random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint(family, **FAMILIES[family])
    return load_verifier(ModelFolder(path, "random"), backend="torch")


@pytest.fixture(scope="module")
def expected(verifier: Verifier) -> np.ndarray:
    """The logits of the history, one token at a time until some time past sink and window."""
    cache = verifier.allocate(caches.restored())
    single = caches.run(verifier, cache, caches.HISTORY[:SINGLE], [1])
    return np.concatenate([single, caches.run(verifier, cache, caches.HISTORY[SINGLE:], [16])])


def test_it_is_full_attention(verifier: Verifier, family: str, expected: np.ndarray) -> None:
    full = caches.run(verifier, verifier.allocate(FULL), caches.HISTORY, [16])
    assert np.abs(full).max() > 1
    assert np.abs(full - expected).max() < TOLERANCE.get(family, 2e-6) * np.abs(expected).max()
    assert np.array_equal(full.argmax(axis=1), expected.argmax(axis=1))


def test_without_what_is_evicted_it_would_be_another(
    verifier: Verifier, expected: np.ndarray
) -> None:
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=16)
    forgotten = caches.run(verifier, verifier.allocate(spec), caches.HISTORY, [16])
    assert np.abs(forgotten - expected)[3 + 16 + 16 :].max() > 0.1


def test_chunks_change_no_bits(verifier: Verifier, expected: np.ndarray) -> None:
    sizes = (1, 16, 3, 7, 11)
    got = caches.run(verifier, verifier.allocate(caches.restored()), caches.HISTORY, sizes)
    assert got.tobytes() == expected.tobytes()


def test_any_window_is_full_attention_and_exact(verifier: Verifier, family: str) -> None:
    # A family has one of them: of the rule, no layer's kind knows more than its masks.
    sink, window = WINDOWS[sorted(FAMILIES).index(family) % len(WINDOWS)]
    spec, tokens = caches.restored(sink, window), caches.HISTORY[:LONG]
    full = caches.run(verifier, verifier.allocate(FULL), tokens, [16])
    widest = verifier.allocate(spec).widest
    # A window of 1 takes one token a forward, whatever is asked.
    sizes = sorted({min(size, widest) for size in (1, 5, 16)})
    rows = [caches.run(verifier, verifier.allocate(spec), tokens, [size]) for size in sizes]
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)
    assert len(rows) > 1 or widest == 1
    assert np.abs(rows[0] - full).max() < TOLERANCE.get(family, 2e-6) * np.abs(full).max()


def test_a_verifier_without_caches_agrees(verifier: Verifier, expected: np.ndarray) -> None:
    recomputing = RecomputingVerifier(verifier)
    cache = recomputing.allocate(caches.restored())
    cache.extend(caches.HISTORY[:100])
    got = recomputing.forward(cache, caches.HISTORY[100:103], want_logits=True)
    assert got is not None
    assert got.tobytes() == expected[100:103].tobytes()


def test_rejected_tokens_leave_nothing_behind(verifier: Verifier, expected: np.ndarray) -> None:
    rng = random.Random(0)
    cache = verifier.allocate(caches.restored())
    while cache.length < LONG:
        start = cache.length
        right = caches.HISTORY[start : min(LONG, start + rng.randint(1, 16))]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, 16 - len(right)))]
        got = verifier.forward(cache, right + wrong, want_logits=True)
        cache.truncate(start + len(right))
        assert got is not None
        assert got[: len(right)].tobytes() == expected[start : start + len(right)].tobytes(), start


def test_a_fork_and_its_source_go_their_own_ways(verifier: Verifier, expected: np.ndarray) -> None:
    tokens = caches.HISTORY
    cache = verifier.allocate(caches.restored())
    caches.run(verifier, cache, tokens[:50], [16])
    # Wrong tokens that the source drops: what they evicted is of the right history.
    verifier.forward(cache, [1] * 16, want_logits=False)
    cache.truncate(50)
    lengths = sorted({50, cache.forkable_from, (50 + cache.forkable_from) // 2})
    forks = {length: cache.fork(length) for length in lengths}
    caches.run(verifier, cache, [(token + 7) % 96 for token in tokens[:60]], [16])
    for length, fork in forks.items():
        got = caches.run(verifier, fork, tokens[length:LONG], [5])
        assert got.tobytes() == expected[length:LONG].tobytes(), length


def test_a_fork_forgets_what_its_source_has_evicted_since(
    verifier: Verifier, expected: np.ndarray
) -> None:
    cache = verifier.allocate(caches.restored())
    caches.run(verifier, cache, caches.HISTORY[:50], [16])
    caches.run(verifier, cache, [1] * 30, [15])
    if cache.forkable_from > 50:
        pytest.skip("a recurrent state does not go back that far")
    # What is deposited ends behind 50, with other tokens' keys.
    fork = cache.fork(50)
    got = caches.run(verifier, fork, caches.HISTORY[50:LONG], [16])
    assert got.tobytes() == expected[50:LONG].tobytes()


def test_sessions_that_share_a_forward_are_as_alone(
    verifier: Verifier, expected: np.ndarray
) -> None:
    tokens = caches.HISTORY
    starts, counts = [0, 33, 70, 17, 64], [5, 1, 7, 4, 2]
    made = []
    for start in starts:
        made.append(verifier.allocate(caches.restored()))
        if start:
            caches.run(verifier, made[-1], tokens[:start], [16])
    for _ in range(2):
        feeds = [
            Feed(cache, tokens[start : start + count], want_logits=True)
            for cache, start, count in zip(made, starts, counts, strict=True)
        ]
        outputs = verifier.forward_batch(feeds)
        for start, count, output in zip(starts, counts, outputs, strict=True):
            assert output.logits is not None
            assert output.logits.tobytes() == expected[start : start + count].tobytes(), start
        starts = [start + count for start, count in zip(starts, counts, strict=True)]


def test_before_anything_is_evicted_it_is_sink_and_window(verifier: Verifier) -> None:
    # Longer than the layers' own windows, so that these are placed alike.
    sink, window = 3, 30
    tokens = caches.HISTORY[: sink + window]
    plain = CacheSpec(CacheKind.SINK_WINDOW, sink=sink, window=window)
    kept = caches.run(verifier, verifier.allocate(plain), tokens, [16])
    got = caches.run(verifier, verifier.allocate(caches.restored(sink, window)), tokens, [7])
    assert got.tobytes() == kept.tobytes()


def test_its_bytes_do_not_grow_and_are_those_that_were_foretold(verifier: Verifier) -> None:
    spec = caches.restored()
    cache = verifier.allocate(spec)
    foretold = verifier.bytes_needed(spec)
    seen = set()
    stored = []
    for first in range(0, 240, 16):
        caches.run(verifier, cache, caches.HISTORY[first : first + 16], [16])
        seen.add(cache.memory_bytes)
        assert cache.evicted is not None
        stored.append(cache.evicted.stored_bytes)
    assert seen == {foretold}
    assert stored[-1] >= (240 - 16 - 3) * verifier.info.kv_bytes_per_token
    assert cache.resident == 3 + 15


def stream(verifier: Verifier, spec: CacheSpec, prompt: list[int], draft: list[int]) -> list[int]:
    """40 greedy tokens behind `prompt`; `draft` is guessed in growing and shrinking blocks."""
    session = Session.allocate(verifier, spec)
    session.append(prompt)
    while PrefillTurn(session)():
        pass
    turn = 0
    while (done := len(session.history) - len(prompt)) < 40:
        turn += 1
        guess = draft[done : done + turn % 16]
        VerifyTurn(session, Block(guess, GREEDY, 40 - done))()
    tokens = list(session.history[len(prompt) :])
    session.end("closed")
    return tokens


def test_the_stream_is_that_of_full_attention_whatever_is_drafted(verifier: Verifier) -> None:
    prompt = caches.HISTORY[:200]
    expected = stream(verifier, FULL, prompt, [])
    assert len(set(expected)) > 4
    half_right = [token if index % 5 else 1 for index, token in enumerate(expected)]
    assert stream(verifier, caches.restored(), prompt, half_right) == expected


def test_what_no_layer_sees_cannot_be_restored(random_checkpoint: Callable[..., Path]) -> None:
    path = random_checkpoint("MistralForCausalLM", sliding_window=24)
    sliding = load_verifier(ModelFolder(path, "random"), backend="torch")
    with pytest.raises(KvStrategyUnsupported, match="no layer"):
        sliding.allocate(caches.restored())


def test_a_cache_of_another_restorer_takes_no_store(verifier: Verifier) -> None:
    made = verifier.allocate(caches.restored())
    archive = caches.RestorerSpec(caches.RestorerKind.ARCHIVE)
    for spec, store in (
        (caches.restored(restorer=archive), None),
        (caches.restored(restorer=archive), made.evicted),
        (CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=16), made.evicted),
        (CacheSpec(CacheKind.RESTORED, sink=3, window=16), None),
    ):
        before = verifier.pool.used_bytes
        with pytest.raises(BadParameters):
            verifier.allocate(spec, store)
        assert verifier.pool.used_bytes == before
