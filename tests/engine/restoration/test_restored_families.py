"""Every family: a restored cache attends to all of the history, and the history alone decides."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import KvStrategyUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from scripts.train.tiny_families import GEMMA4_26B
from tests.support import restored_caches as caches
from tests.support.breadth import all_wide_but

FAMILIES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    # Its sliding layers see 24 positions: more than the window, less than sink and window.
    "Gemma3ForCausalLM",
    "Gemma4ForCausalLM",
    GEMMA4_26B,
    "GptOssForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3_5ForCausalLM",
)
WINDOWS = {
    "LlamaForCausalLM": (0, 1),
    "Gemma4ForCausalLM": (0, 5),
    "GptOssForCausalLM": (5, 3),
    "Qwen3_5ForCausalLM": (0, 21),
}
"""Sink and window of one family of each kind of layers: all alike, sliding with shared keys, with
scores of no keys, and recurrent ones."""
TOLERANCE = {"Gemma4ForCausalLM": 5e-5, GEMMA4_26B: 5e-5}
"""Of the largest logit, 2e-6 for the others. Gemma 4 in the library's own caches: up to 2e-5."""
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=300)
TOKENS = caches.HISTORY[:110]
SINGLE = 71
"""No multiple of a block: behind it blocks of 16 lie otherwise than from the start."""


@pytest.fixture(scope="module")
def load(random_checkpoint: Callable[..., Path]) -> Callable[[str], Verifier]:
    return cache(
        lambda family: load_verifier(
            ModelFolder(random_checkpoint(family), "random"), backend="torch"
        )
    )


@pytest.fixture(scope="module")
def rows(load: Callable[[str], Verifier]) -> Callable[[str], np.ndarray]:
    """The logits of `TOKENS`, one at a time where they leave the windows and a segment ends."""

    def run(family: str) -> np.ndarray:
        verifier = load(family)
        straight = verifier.allocate(caches.restored())
        spans = (
            *((0, 16, 8), (16, 30, 1), (30, 62, 8)),
            *((62, 67, 1), (67, SINGLE, 2), (SINGLE, len(TOKENS), 16)),
        )
        return np.concatenate(
            [caches.run(verifier, straight, TOKENS[a:b], [size]) for a, b, size in spans]
        )

    return cache(run)


# Of those, layers that are all alike, and recurrent ones, which alone keep no old positions.
@pytest.fixture(params=all_wide_but(["LlamaForCausalLM", "Qwen3_5ForCausalLM"], sorted(WINDOWS)))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def verifier(kind: str, load: Callable[[str], Verifier]) -> Verifier:
    return load(kind)


@pytest.fixture
def expected(kind: str, rows: Callable[[str], np.ndarray]) -> np.ndarray:
    return rows(kind)


@pytest.mark.parametrize("family", all_wide_but(WINDOWS, FAMILIES))
def test_it_is_full_attention_and_chunks_change_no_bits(
    load: Callable[[str], Verifier], rows: Callable[[str], np.ndarray], family: str
) -> None:
    verifier, expected = load(family), rows(family)
    cut = caches.run(verifier, verifier.allocate(caches.restored()), TOKENS, (1, 16, 3, 7, 11))
    assert cut.tobytes() == expected.tobytes()
    full = caches.run(verifier, verifier.allocate(FULL), TOKENS, [16])
    assert np.abs(full).max() > 1
    assert np.abs(full - expected).max() < TOLERANCE.get(family, 2e-6) * np.abs(expected).max()
    assert np.array_equal(full.argmax(axis=1), expected.argmax(axis=1))


# Other sinks and windows: `test_restored_cache`.
@pytest.mark.parametrize("kind", all_wide_but(["LlamaForCausalLM"], sorted(WINDOWS)), indirect=True)
def test_any_window_is_full_attention_and_exact(verifier: Verifier, kind: str) -> None:
    spec, tokens = caches.restored(*WINDOWS[kind]), TOKENS[:70]
    full = caches.run(verifier, verifier.allocate(FULL), tokens, [16])
    widest = verifier.allocate(spec).widest
    # A window of 1 takes one token a forward, whatever is asked.
    sizes = sorted({min(size, widest) for size in (1, 5, 16)})
    rows = [caches.run(verifier, verifier.allocate(spec), tokens, [size]) for size in sizes]
    assert all(row.tobytes() == rows[0].tobytes() for row in rows)
    assert len(rows) > 1 or widest == 1
    assert np.abs(rows[0] - full).max() < TOLERANCE.get(kind, 2e-6) * np.abs(full).max()


def test_forks_and_their_source_go_their_own_ways(verifier: Verifier, expected: np.ndarray) -> None:
    source = verifier.allocate(caches.restored())
    caches.run(verifier, source, TOKENS[:50], [16])
    # Wrong tokens that the source drops: what they evicted is of the right history.
    verifier.forward(source, [1] * 16, want_logits=False)
    source.truncate(50)
    lengths = sorted({50, source.forkable_from, (50 + source.forkable_from) // 2})
    forks = {length: source.fork(length) for length in lengths}
    caches.run(verifier, source, [(token + 7) % 96 for token in TOKENS[:60]], [16])
    if source.forkable_from <= 50:
        # What is deposited ends behind 50, with other tokens' keys. A recurrent state does not
        # go back that far.
        forks[50] = source.fork(50)
    for length, fork in forks.items():
        got = caches.run(verifier, fork, TOKENS[length:70], [5])
        assert got.tobytes() == expected[length:70].tobytes(), length


def test_sessions_that_share_a_forward_are_as_alone(
    verifier: Verifier, expected: np.ndarray
) -> None:
    starts, counts = [0, 33, 70, 17, 64], [5, 1, 7, 4, 2]
    made = []
    for start in starts:
        made.append(verifier.allocate(caches.restored()))
        if start:
            caches.run(verifier, made[-1], TOKENS[:start], [16])
    for _ in range(2):
        feeds = [
            Feed(each, TOKENS[start : start + count], want_logits=True)
            for each, start, count in zip(made, starts, counts, strict=True)
        ]
        outputs = verifier.forward_batch(feeds)
        for start, count, output in zip(starts, counts, outputs, strict=True):
            assert output.logits is not None
            assert output.logits.tobytes() == expected[start : start + count].tobytes(), start
        starts = [start + count for start, count in zip(starts, counts, strict=True)]


def stream(verifier: Verifier, spec: CacheSpec, prompt: list[int], draft: list[int]) -> list[int]:
    """24 greedy tokens behind `prompt`; `draft` is guessed in growing and shrinking blocks."""
    session = Session.allocate(verifier, spec)
    session.append(prompt)
    while PrefillTurn(session)():
        pass
    turn = 0
    while (done := len(session.history) - len(prompt)) < 24:
        turn += 1
        guess = draft[done : done + turn % 16]
        VerifyTurn(session, Block(guess, GREEDY, 24 - done))()
    tokens = list(session.history[len(prompt) :])
    session.end("closed")
    return tokens


@pytest.mark.parametrize(
    "family", all_wide_but(["LlamaForCausalLM", "Qwen3_5ForCausalLM"], FAMILIES)
)
def test_the_stream_is_that_of_full_attention_whatever_is_drafted(
    load: Callable[[str], Verifier], family: str
) -> None:
    verifier = load(family)
    expected = stream(verifier, FULL, TOKENS, [])
    assert len(set(expected)) > 4
    half_right = [token if index % 5 else 1 for index, token in enumerate(expected)]
    assert stream(verifier, caches.restored(), TOKENS, half_right) == expected


def test_what_no_layer_sees_cannot_be_restored(random_checkpoint: Callable[..., Path]) -> None:
    path = random_checkpoint("MistralForCausalLM", sliding_window=24)
    sliding = load_verifier(ModelFolder(path, "random"), backend="torch")
    with pytest.raises(KvStrategyUnsupported, match="no layer"):
        sliding.allocate(caches.restored())
