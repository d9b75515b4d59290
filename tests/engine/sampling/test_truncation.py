from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.sampling.truncation import Truncation, truncated

NO_FILTER = Truncation(0, 0.0, 0.0)


def kept_of(logits, temperature, truncation):
    ids, weights = truncated(np.array(logits, np.float64), temperature, truncation)
    return (list(range(len(logits))) if ids is None else ids.tolist()), weights


# Few levels make ties, the far ones underflow, and -inf is an impossible id.
LOGITS = st.lists(
    st.sampled_from([0.0, 1.0, 1.0 + 2**-20, 5.0, -30.0, -900.0, -math.inf])
    | st.floats(-3, 3, width=32),
    min_size=1,
    max_size=200,
).filter(lambda logits: max(logits) > -math.inf)


@settings(deadline=None)
@given(LOGITS, st.sampled_from([0.05, 1.0, 100.0]), st.floats(0, 1, exclude_min=True))
def test_top_p_keeps_the_smallest_set_of_first_ranked_ids_that_reaches_it(
    logits, temperature: float, top_p: float
) -> None:
    ids, weights = kept_of(logits, temperature, Truncation(0, top_p, 0.0))
    _, everything = kept_of(logits, temperature, NO_FILTER)
    assert weights.tolist() == everything[ids].tolist()
    ranked = sorted(range(len(logits)), key=lambda index: (-logits[index], index))
    if top_p == 1.0:
        assert ids == sorted(ranked)
        return
    assert ids == sorted(ranked[: len(ids)])
    wanted = top_p * math.fsum(everything)
    assert math.fsum(weights) >= wanted * (1 - 1e-12)
    assert math.fsum(everything[ranked[: len(ids) - 1]]) <= wanted * (1 + 1e-12)


@pytest.mark.parametrize(("top_p", "count"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3)])
def test_a_set_that_just_reaches_top_p_is_enough(top_p: float, count: int) -> None:
    assert kept_of([1.0] * 4, 1.0, Truncation(0, top_p, 0.0))[0] == list(range(count))


@settings(deadline=None)
@given(LOGITS, st.sampled_from([5e-324, 1.0, 100.0]), st.integers(0, 250), st.floats(0, 1))
def test_top_k_and_min_p_keep_first_ranked_ids_too(
    logits, temperature: float, top_k: int, min_p: float
) -> None:
    ids, weights = kept_of(logits, temperature, Truncation(top_k, 0.0, min_p))
    ranked = sorted(range(len(logits)), key=lambda index: (-logits[index], index))
    first = ranked[: top_k or len(ranked)]
    assert ranked[0] in ids
    assert set(ids) <= set(first)
    largest = logits[ranked[0]]
    for index in first:
        weight = math.exp(min(0.0, (logits[index] - largest) / temperature))
        if abs(weight - min_p) > 1e-12 and temperature > 1e-300:
            assert (index in ids) == (weight >= min_p)
    assert weights.max() == 1.0


def test_a_sharp_temperature_leaves_one_and_no_warning() -> None:
    _, weights = kept_of([1.0, 3.0, 2.0], 5e-324, NO_FILTER)
    assert weights.tolist() == [0.0, 1.0, 0.0]
