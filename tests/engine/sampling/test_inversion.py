"""Which weight a number falls on, by exact sums."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.sampling.inversion import SPAN, drawn

LAST = 1 - 2.0**-53
EXACT = 1e-12
NUMBERS = st.one_of(st.sampled_from([0.0, 0.5, LAST]), st.floats(0, LAST))


def shares(weights: np.ndarray) -> list[Fraction]:
    """Where each index's share of [0, 1) ends, without rounding."""
    ends = list(accumulate(Fraction(float(weight)) for weight in weights))
    return [end / ends[-1] for end in ends]


@given(
    st.integers(1, 3 * SPAN + 7),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 3.0, 30.0, 300.0]),
    NUMBERS,
)
def test_a_number_falls_on_the_index_whose_share_it_lies_in(
    size: int, seed: int, spread: float, number: float
) -> None:
    rng = np.random.default_rng(seed)
    weights = np.exp(-spread * rng.random(size))
    weights[rng.random(size) < 0.3] = 0.0
    weights[rng.integers(size)] = 1.0
    index, margin = drawn(weights, number)
    ends = shares(weights)
    begin = ends[index - 1] if index else Fraction(0)
    assert weights[index] > 0
    assert begin - Fraction(EXACT) <= Fraction(number) <= ends[index] + Fraction(EXACT)
    wanted = max(0.0, float(min(Fraction(number) - begin, ends[index] - Fraction(number))))
    assert margin == pytest.approx(wanted, abs=EXACT)


@pytest.mark.parametrize("size", [1, SPAN - 1, SPAN, SPAN + 1, 4 * SPAN])
@pytest.mark.parametrize("number", [0.0, LAST])
def test_who_weighs_nothing_is_never_drawn(size: int, number: float) -> None:
    for place in {0, size // 2, size - 1}:
        weights = np.zeros(size)
        weights[place] = 1.0
        assert drawn(weights, number)[0] == place


def test_each_index_has_its_share_across_the_borders_of_spans() -> None:
    weights = np.ones(2 * SPAN)
    for index in (0, 1, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN - 1):
        assert drawn(weights, index / (2 * SPAN))[0] == index
        assert drawn(weights, (index + 1) / (2 * SPAN) - 1e-9)[0] == index


def test_a_span_whose_sum_was_rounded_otherwise_gives_its_last_index() -> None:
    """Behind 2**53 ones are lost one by one, and are not when they are added up first."""
    weights = np.zeros(SPAN)
    weights[0] = 2.0**53
    weights[8:200] = 1.0
    assert weights.cumsum()[-1] < np.add.reduceat(weights, [0])[0]
    assert drawn(weights, LAST)[0] == 199
