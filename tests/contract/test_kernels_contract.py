"""What holds of the kernels of every back end."""

from __future__ import annotations

import importlib
import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN, Floats
from kakeya_fleet.engine.kv.kernels import Kernels

HEADS, ROWS, HEAD_DIM = 2, 3, 4
NUMBER = np.zeros((HEADS, ROWS, 1), np.float32)
VALUES = np.zeros((HEADS, ROWS, HEAD_DIM), np.float32)


@pytest.fixture(params=["torch", "mlx"])
def kernels(request: pytest.FixtureRequest) -> Kernels[Any]:
    name = str(request.param)
    if name == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    module = importlib.import_module(f"kakeya_fleet.engine.backends.{name}_backend.kernels")
    made: Kernels[Any] = getattr(module, f"{name.capitalize()}Kernels")("float32")
    return made


def part(scores: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Attention to some keys: scores [heads, rows, keys], values [heads, keys, head_dim]."""
    if not scores.shape[2]:
        return NUMBER.copy(), VALUES.copy(), NUMBER + np.float32(NOTHING_SEEN)
    highest = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - highest)
    return weights.sum(axis=2, keepdims=True), weights @ values, highest


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_parts_merge_to_the_attention_of_all_in_any_order(
    kernels: Kernels[Any], order: tuple[int, ...]
) -> None:
    """Of scores that lie so far apart that exp overflows, and a part in which nothing is seen."""
    rng = np.random.default_rng(7)
    shapes = [(5, 0.0), (0, 0.0), (3, 400.0), (4, -400.0)]
    scores = [rng.normal(at, 3, (HEADS, ROWS, keys)).astype(np.float32) for keys, at in shapes]
    values = [rng.normal(0, 1, (HEADS, keys, HEAD_DIM)).astype(np.float32) for keys, _ in shapes]
    like = [kernels.rows(each, HEADS) for each in (NUMBER, VALUES, NUMBER)]
    parts = [
        tuple(map(kernels.device, part(scores[index], values[index]), like)) for index in order
    ]
    total, output, _ = (kernels.host(array) for array in reduce(kernels.merged, parts))
    exact = np.concatenate(scores, 2).astype(np.float64)
    weights = np.exp(exact - exact.max(axis=2, keepdims=True))
    expected = weights @ np.concatenate(values, 1) / weights.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(np.array(output) / np.array(total), expected, rtol=1e-5)


def test_a_part_in_which_nothing_is_seen_changes_no_bit(kernels: Kernels[Any]) -> None:
    rng = np.random.default_rng(8)
    like = [kernels.rows(each, HEADS) for each in (NUMBER, VALUES, NUMBER)]
    scores = rng.normal(0, 3, (HEADS, ROWS, 6)).astype(np.float32)
    seen = part(scores, rng.normal(0, 1, (HEADS, 6, HEAD_DIM)).astype(np.float32))
    unseen = part(scores[:, :, :0], VALUES)
    first, second = (tuple(map(kernels.device, each, like)) for each in (seen, unseen))
    for before, after in zip(seen, kernels.merged(first, second), strict=True):
        np.testing.assert_array_equal(np.array(kernels.host(after)), before)
