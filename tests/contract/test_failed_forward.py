"""A forward that fails between its layers leaves nothing that a later one would read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.forwards import logits_of

HISTORY = [(13 * index + index * index // 5) % 96 for index in range(160)]
SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=47)


# Keys alone, and recurrent states before and behind the layer that fails.
@pytest.fixture(scope="module", params=["Qwen3ForCausalLM", "Qwen3_5ForCausalLM"])
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def verifier(
    request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path], architecture: str
) -> Verifier:
    if request.param not in installed_backends():
        pytest.skip(f"the libraries of the back end {request.param} are not installed")
    folder = ModelFolder(random_checkpoint(architecture), "random")
    return load_verifier(folder, backend=request.param)


def filled(verifier: Verifier, end: int, block: int = 9) -> KvCache:
    cache = verifier.allocate(SPEC)
    for first in range(0, end, block):
        verifier.forward(cache, HISTORY[first : min(end, first + block)], want_logits=False)
    return cache


def fail(verifier: Verifier, feeds: list[Feed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs `feeds` on a machine whose memory ends at layer 1."""
    kind: Any = type(feeds[0].cache)
    write = kind.write

    def short_of_memory(cache: Any, layer: int, *arguments: Any) -> None:
        if layer == 1:
            raise MemoryError
        write(cache, layer, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "write", short_of_memory)
        with pytest.raises(MemoryError):
            verifier.forward_batch(feeds)


def test_the_same_tokens_or_others_give_the_bits_of_the_history(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """96 of 99 tokens, the last 9 of which came in one forward."""
    kept = 96
    cache, other = filled(verifier, 99), filled(verifier, 30)
    cache.truncate(kept)
    tail = HISTORY[kept : kept + 5]
    expected = logits_of(verifier, filled(verifier, kept, block=16), tail)
    for _ in range(2):
        fail(verifier, [Feed(cache, [7] * 11, True), Feed(other, [8, 9], True)], monkeypatch)
        assert cache.length == kept
        fork = cache.fork(kept)
        assert np.array_equal(logits_of(verifier, fork, tail), expected)
    assert np.array_equal(logits_of(verifier, cache, tail), expected)
    alone = logits_of(verifier, filled(verifier, 30), HISTORY[30:33])
    assert np.array_equal(logits_of(verifier, other, HISTORY[30:33]), alone)


def test_what_it_wrote_over_is_not_forked(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = filled(verifier, 128, block=16)
    fail(verifier, [Feed(cache, [7] * 16, True)], monkeypatch)
    shortest = cache.forkable_from
    for length in {shortest, 128}:
        got = logits_of(verifier, cache.fork(length), HISTORY[length : length + 4])
        expected = logits_of(verifier, filled(verifier, length), HISTORY[length : length + 4])
        assert np.array_equal(got, expected), length
    with pytest.raises(ValueError, match="cannot fork"):
        cache.fork(shortest - 1)
    with pytest.raises(ValueError, match="cannot keep"):
        cache.truncate(127)
