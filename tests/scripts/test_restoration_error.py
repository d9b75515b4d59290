"""The distances from full attention, against what they are by definition."""

import math
from pathlib import Path

import numpy as np
import pytest

from scripts.eval.restoration_error import attention_overlap, logit_gap, relative_error

ROOT = Path(__file__).resolve().parents[2]

RNG = np.random.default_rng(0)
HEADS, KV_HEADS, LENGTH, SIZE, COUNT = 4, 2, 40, 8, 5
SINK, WINDOW, FIRST, SCALING = 3, 10, LENGTH - COUNT, SIZE**-0.5
KEYS = RNG.standard_normal((KV_HEADS, LENGTH, SIZE)).astype(np.float32)
QUERIES = RNG.standard_normal((HEADS, COUNT, SIZE)).astype(np.float32)


def overlap(
    restored: np.ndarray | None, queries: np.ndarray = QUERIES, keys: np.ndarray = KEYS
) -> float:
    return attention_overlap(
        queries, FIRST, keys, scaling=SCALING, sink=SINK, window=WINDOW, restored=restored
    )


def probabilities(head: int, row: int, keys: np.ndarray) -> list[float]:
    position = FIRST + row
    scores = [
        float(QUERIES[head, row] @ keys[head // 2, slot]) * SCALING for slot in range(position + 1)
    ]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


def is_evicted(row: int, slot: int) -> bool:
    return SINK <= slot <= FIRST + row - WINDOW


def test_without_restoration_it_is_the_mass_on_what_is_resident() -> None:
    masses = [
        sum(
            share
            for slot, share in enumerate(probabilities(head, row, KEYS))
            if not is_evicted(row, slot)
        )
        for head in range(HEADS)
        for row in range(COUNT)
    ]
    assert overlap(None) == pytest.approx(sum(masses) / len(masses), abs=1e-6)
    assert overlap(None) < 0.7


def test_exact_keys_restore_all_of_it_and_others_as_much_as_they_agree() -> None:
    evicted = slice(SINK, LENGTH - WINDOW)
    assert overlap(KEYS[:, evicted]) == pytest.approx(1.0)
    noisy = KEYS[:, evicted] + RNG.standard_normal((KV_HEADS, LENGTH - WINDOW - SINK, SIZE)) * 0.7
    wrong = KEYS.copy()
    wrong[:, evicted] = noisy
    expected = []
    for head in range(HEADS):
        for row in range(COUNT):
            full = probabilities(head, row, KEYS)
            mixed = KEYS.copy()
            for slot in range(LENGTH):
                if is_evicted(row, slot):
                    mixed[:, slot] = wrong[:, slot]
            other = probabilities(head, row, mixed)
            expected.append(sum(min(one, two) for one, two in zip(full, other, strict=True)))
    assert overlap(noisy.astype(np.float32)) == pytest.approx(sum(expected) / len(expected), 1e-6)


def test_the_gap_of_logits_is_the_divergence_to_full() -> None:
    full = np.log(np.asarray([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], np.float32))
    other = np.log(np.asarray([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]], np.float32)) + np.float32(3.0)
    gap = logit_gap(full, other)
    divergence = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    assert gap.kl == pytest.approx(divergence / 2, abs=1e-6)
    assert gap.agreement == 0.5
    assert logit_gap(full, full).kl == pytest.approx(0.0, abs=1e-12)


def test_the_error_is_relative_to_the_size_of_what_was_there() -> None:
    assert relative_error(KEYS, np.zeros_like(KEYS)) == pytest.approx(1.0)
    assert relative_error(KEYS, KEYS * np.float32(1.1)) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(10 * KEYS, 11 * KEYS) == pytest.approx(0.01, rel=1e-3)
    assert relative_error(KEYS[:, :0], KEYS[:, :0]) == 0.0
