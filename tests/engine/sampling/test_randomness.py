from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.randomness import draw_seed, uniform

_MASK = 2**64 - 1


def philox_4x64_10(counter: int, key: int) -> int:
    """The first word, written from the paper's description."""
    c = [(counter >> (64 * index)) & _MASK for index in range(4)]
    k = [key & _MASK, (key >> 64) & _MASK]
    for _ in range(10):
        product0 = 0xD2E7470EE14C6C93 * c[0]
        product1 = 0xCA5A826395121157 * c[2]
        c = [
            (product1 >> 64) ^ c[1] ^ k[0],
            product1 & _MASK,
            (product0 >> 64) ^ c[3] ^ k[1],
            product0 & _MASK,
        ]
        k = [(k[0] + 0x9E3779B97F4A7C15) & _MASK, (k[1] + 0xBB67AE8584CAA73B) & _MASK]
    return c[0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_it_is_philox_by_the_paper(seed: int, position: int) -> None:
    # numpy advances the counter before each block.
    expected = (philox_4x64_10(position + 1, seed) >> 11) / 2**53
    assert uniform(seed, position) == expected


def test_numbers_of_neighbouring_positions_and_seeds_are_uniform_and_unrelated() -> None:
    grid = np.array([[uniform(seed, position) for position in range(400)] for seed in range(5)])
    assert grid.min() >= 0.0
    assert grid.max() < 1.0
    counts, _ = np.histogram(grid, bins=20, range=(0, 1))
    # 99.99 % point of chi-square with 19 degrees of freedom.
    assert ((counts - 100) ** 2 / 100).sum() < 50.8
    assert abs(np.corrcoef(grid[0, :-1], grid[0, 1:])[0, 1]) < 0.2
    assert abs(np.corrcoef(grid[0], grid[1])[0, 1]) < 0.2


@pytest.mark.parametrize(("seed", "position"), [(-1, 0), (2**64, 0), (0, -1)])
def test_arguments_outside_their_range_are_refused(seed: int, position: int) -> None:
    with pytest.raises(BadParameters):
        uniform(seed, position)


def test_a_drawn_seed_is_the_entropy_and_never_zero() -> None:
    assert draw_seed(lambda count: b"\x01" * count) == 0x0101010101010101
    assert draw_seed(bytes) == 1
