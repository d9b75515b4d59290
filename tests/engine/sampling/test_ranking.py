from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.sampling.ranking import highest


def by_sorting(values, count):
    return np.sort(np.argsort(-values, kind="stable")[:count])


@settings(deadline=None)
@given(st.data(), st.integers(1, 700), st.integers(1, 12))
def test_the_highest_are_those_of_a_stable_sort(data, size: int, levels: int) -> None:
    """Few levels make many ties; sizes go around the groups' borders."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    count = data.draw(st.integers(0, size))
    values = np.random.default_rng(seed).integers(0, levels, size).astype(np.float32)
    assert highest(values, count).tolist() == by_sorting(values, count).tolist()


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000, 2344, 2345, 149_999])
def test_also_in_a_large_vocabulary_and_with_impossible_ids(count: int) -> None:
    values = np.random.default_rng(1).standard_normal(150_000)
    values[::3] = -np.inf
    assert highest(values, count).tolist() == by_sorting(values, count).tolist()
