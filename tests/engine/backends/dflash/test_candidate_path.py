"""The candidates of a row, and the path through them, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends.dflash.candidates import largest_in_order
from kakeya_fleet.engine.backends.dflash.confidence import confident_rows
from kakeya_fleet.engine.backends.dflash.selector import counted, walked
from kakeya_fleet.engine.backends.dflash.version_2 import SelectorShape

LOGITS = st.lists(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0]), min_size=6, max_size=6),
    min_size=1,
    max_size=4,
)


def floats(*rows: object) -> np.ndarray:
    return np.array(rows, np.float32)


@settings(deadline=None)
@given(rows=LOGITS, top_k=st.integers(1, 6))
def test_candidates_are_the_largest_in_order(rows: list[list[float]], top_k: int) -> None:
    """Of equal logits the smaller id comes first; which of them are left out is the same always."""
    logits = floats(*rows)
    ids, largest = largest_in_order(logits, top_k)
    for row, found, values in zip(rows, ids.tolist(), largest.tolist(), strict=True):
        assert [row[token] for token in found] == values == sorted(row, reverse=True)[:top_k]
        assert found == sorted(found, key=lambda token: (-row[token], token))
    assert np.array_equal(largest_in_order(logits.copy(), top_k)[0], ids)


def test_a_logit_is_scaled_and_then_capped() -> None:
    shape = SelectorShape(rank=1, top_k=2, multiplier=0.5, softcap=3.0)
    unary = counted(floats([100.0, 8.0]), shape)
    np.testing.assert_allclose(unary, [[3.0, 3.0 * np.tanh(4.0 / 3.0)]], rtol=1e-6)


def test_the_path_is_greedy_and_not_the_best_of_all() -> None:
    """The first row's second candidate would have led to more, and is not taken."""
    unary = floats([1.0, 0.9], [0.0, 0.0])
    gates = floats([0.0], [1.0])
    predecessors = floats([5.0], [0.0], [100.0])
    successors = floats([[1.0], [1.0]], [[1.0], [2.0]])
    path, befores = walked(unary, gates, predecessors, successors)
    assert path.tolist() == [0, 0]
    assert befores.tolist() == [[5.0], [0.0]]
    gates[0] = 1.0
    successors[0] = [[0.0], [1.0]]
    path, befores = walked(unary, gates, predecessors, successors)
    assert path.tolist() == [1, 1]
    assert befores.tolist() == [[5.0], [100.0]]


@pytest.mark.parametrize(
    ("threshold", "count"), [(0.0, 4), (0.4, 4), (0.5, 4), (0.51, 1), (0.8, 0), (0.999_999, 0)]
)
def test_a_block_ends_before_the_first_row_below_the_threshold(
    threshold: float, count: int
) -> None:
    """Confidences 0.75, 0.5, 0.99, 0.5: later ones that are sure do not count any more."""
    odds = np.log(floats([3.0], [1.0], [99.0], [1.0]))
    features = np.concatenate((odds, odds * 0.0 + 7.0), axis=1) + floats([1.0, 0.0])
    weight, bias = floats([1.0, 0.0]), floats(-1.0)
    assert confident_rows(features, weight, bias, threshold) == count


def test_numbers_that_are_none_still_make_a_path() -> None:
    broken = floats([np.nan, np.inf, -np.inf, 1.0], [np.nan] * 4)
    ids, logits = largest_in_order(broken, 2)
    unary = counted(logits, SelectorShape(1, 2, 1.0, None))
    assert all(len(set(row)) == 2 and set(row) <= {0, 1, 2, 3} for row in ids.tolist())
    zeros = floats([0.0], [0.0], [0.0])
    with np.errstate(invalid="ignore"):
        path, _ = walked(unary, floats([np.inf], [0.0]), zeros, unary[..., None])
    assert set(path.tolist()) <= {0, 1}
    assert confident_rows(floats([np.nan], [9.0]), floats([1.0]), floats(0.0), 0.5) == 0
