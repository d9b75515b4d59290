"""Measured steps, and the check that a verifier is exact."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.backends import load_verifier
from engine.cache import KvCache
from engine.calibration import is_exact, measure_steps
from engine.model_folder import ModelFolder
from engine.verifier import Logits, Verifier, VerifierInfo


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    return load_verifier(ModelFolder(random_checkpoint(num_hidden_layers=1), "random"))


class Altered:
    """`inner`, with each forward altered by `alter`."""

    def __init__(
        self, inner: Verifier, alter: Callable[[KvCache, Sequence[int], Logits], None]
    ) -> None:
        self.inner = inner
        self.alter = alter
        self.allocate = inner.allocate
        self.clone = inner.clone
        self.bytes_needed = inner.bytes_needed

    @property
    def info(self) -> VerifierInfo:
        return self.inner.info

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        logits = self.inner.forward(cache, token_ids, want_logits=want_logits)
        if logits is not None:
            self.alter(cache, token_ids, logits)
        return logits


def test_this_back_end_is_exact(verifier: Verifier) -> None:
    assert is_exact(verifier)


def test_a_last_bit_that_depends_on_the_block_is_found(verifier: Verifier) -> None:
    def alter(cache: KvCache, token_ids: Sequence[int], logits: Logits) -> None:
        if len(token_ids) == verifier.info.width:
            logits.view("int32")[0, 0] ^= 1

    assert not is_exact(Altered(verifier, alter))


def test_a_bit_that_only_rejected_tokens_change_is_found(verifier: Verifier) -> None:
    longest: dict[int, int] = {}

    def alter(cache: KvCache, token_ids: Sequence[int], logits: Logits) -> None:
        reached = longest.get(id(cache), 0)
        if cache.length - len(token_ids) < reached and cache.length > 30:
            logits.view("int32")[0, 0] ^= 1
        longest[id(cache)] = max(reached, cache.length)

    keep: list[KvCache] = []
    altered = Altered(verifier, alter)

    def clone(cache: KvCache) -> KvCache:
        keep.append(verifier.clone(cache))  # so that no id is used twice
        return keep[-1]

    altered.clone = clone
    assert not is_exact(altered)


def test_steps_are_medians_of_the_clock(verifier: Verifier) -> None:
    ticks = itertools.count()
    steps = measure_steps(verifier, lambda: float(next(ticks)), counts=(1, 4, 16, 17), repeats=3)
    assert steps == ((1, 1.0), (4, 1.0), (16, 1.0))


def test_a_slow_outlier_does_not_move_the_median(verifier: Verifier) -> None:
    times = iter([0.0, 9.0, 0.0, 2.0, 0.0, 100.0, 0.0, 3.0])
    assert measure_steps(verifier, lambda: next(times), counts=(2,), repeats=3) == ((2, 3.0),)


def test_a_model_of_few_positions_can_be_measured_and_checked(
    random_checkpoint: Callable[..., Path],
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=48)
    short = load_verifier(ModelFolder(path, "short"))
    assert is_exact(short)
    ticks = itertools.count()
    assert len(measure_steps(short, lambda: float(next(ticks)), repeats=1)) == 5
