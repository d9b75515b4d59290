from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.acceptance import decide
from engine.errors import BadParameters, InvariantViolated
from engine.sampling import GREEDY, SamplingParameters, choose, choose_token

LOGITS = np.array([2.0, 0.5, 1.5, -1.0, 1.0, -np.inf, 0.0, 1.25], np.float32)
DRAWS = 4000


def probabilities(temperature=1.0, kept=None):
    weights = np.exp((LOGITS.astype(np.float64) - 2.0) / temperature)
    if kept is not None:
        weights[[index for index in range(8) if index not in kept]] = 0.0
    return weights / weights.sum()


def frequencies(parameters):
    rows = np.tile(LOGITS, (DRAWS, 1))
    return np.bincount(choose(rows, parameters, 1000), minlength=8)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (SamplingParameters(1.0, seed=1), probabilities()),
        (SamplingParameters(0.5, seed=2), probabilities(0.5)),
        (SamplingParameters(1.0, top_k=3, seed=3), probabilities(kept={0, 2, 7})),
        # 0.362 + 0.220 reach 0.55, the first alone does not.
        (SamplingParameters(1.0, top_p=0.55, seed=4), probabilities(kept={0, 2})),
        (SamplingParameters(2.0, top_p=0.3, top_k=2, seed=5), probabilities(kept={0})),
        (SamplingParameters(1.0, top_p=0.0, seed=6), probabilities()),
    ],
)
def test_sampled_frequencies_are_the_filtered_softmax(parameters, expected):
    counts = frequencies(parameters)
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    wanted = expected[possible] * DRAWS
    chi_square = ((counts[possible] - wanted) ** 2 / wanted).sum()
    # 99.99 % point with 7 degrees of freedom; fewer only have a lower one.
    assert chi_square < 29.9


@pytest.mark.parametrize("drafted", [0, 2, 3])
def test_accepting_a_point_mass_draft_is_exact(drafted):
    """P(accept x) = p(x), and what replaces a rejected x is p without x, renormalised."""
    parameters = SamplingParameters(1.0, seed=11)
    rows = np.stack([LOGITS, LOGITS])
    committed = [decide(rows, [drafted], parameters, 2 * index) for index in range(DRAWS)]
    firsts = np.array([tokens[0] for tokens in committed])
    expected = probabilities()
    accepted = int((firsts == drafted).sum())
    assert all(len(tokens) == 1 + (tokens[0] == drafted) for tokens in committed)
    deviation = math.sqrt(DRAWS * expected[drafted] * (1 - expected[drafted]))
    assert abs(accepted - DRAWS * expected[drafted]) < 4 * deviation
    residual = expected.copy()
    residual[drafted] = 0
    residual /= residual.sum()
    wanted = residual[residual > 0] * (DRAWS - accepted)
    counts = np.bincount(firsts[firsts != drafted], minlength=8)[residual > 0]
    assert ((counts - wanted) ** 2 / wanted).sum() < 27.9


def test_a_choice_depends_on_its_position_alone_not_on_the_block():
    parameters = SamplingParameters(1.0, seed=9)
    rows = np.tile(LOGITS, (32, 1))
    whole = choose(rows, parameters, 100)
    assert len(set(whole)) > 2
    pieces = [choose(rows[:size], parameters, 100 + at) for at, size in ((0, 7), (7, 25))]
    assert [*pieces[0], *pieces[1]] == whole
    assert choose(rows, parameters, 101)[:-1] == whole[1:]


def test_greedy_takes_the_lowest_id_of_the_largest():
    rows = np.array([[0, 3, 3, 1], [5, 5, 5, 5]], np.float32)
    assert choose(rows, GREEDY, 0) == [1, 0]
    assert all(type(token) is int for token in choose(rows, GREEDY, 0))


def test_ties_at_the_edge_of_top_k_and_top_p_keep_the_lowest_ids():
    # Enough ids that a sort which is not stable mixes them.
    row = np.tile(np.array([0, 1], np.float32), 200)
    for parameters in (
        SamplingParameters(1.0, top_k=2, seed=1),
        SamplingParameters(1e-3, top_p=1.9 / 200, seed=1),
    ):
        chosen = {choose_token(row, parameters, position) for position in range(200)}
        assert chosen == {1, 3}


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.floats(0, 100),
    st.floats(0, 1),
    st.integers(0, 30),
    st.integers(0, 2**64 - 1),
)
def test_every_choice_is_a_possible_id(logits, temperature, top_p, top_k, seed):
    row = np.array(logits, np.float32)
    parameters = SamplingParameters(temperature, top_p, top_k, seed)
    chosen = choose_token(row, parameters, 5)
    assert 0 <= chosen < len(row)
    rank = np.flatnonzero(np.argsort(-row, kind="stable") == chosen)[0]
    assert rank < (top_k or len(row))
    if temperature == 0.0:
        assert rank == 0


def test_a_vanishing_temperature_is_greedy():
    parameters = SamplingParameters(5e-324, seed=1)
    assert {choose_token(LOGITS, parameters, position) for position in range(50)} == {0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_mean_nothing_end_in_an_error(bad):
    row = np.full(4, -np.inf, np.float32) if bad == -math.inf else LOGITS.copy()
    row[1] = bad
    for parameters in (GREEDY, SamplingParameters(1.0)):
        with pytest.raises(InvariantViolated) as caught:
            choose_token(row, parameters, 0)
        assert caught.value.metadata["invariant"] == "finite_logits"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, bad) for name in ("temperature", "top_p") for bad in (math.nan, math.inf, -0.1)),
        ("temperature", 100.1),
        ("top_p", 1.1),
        ("top_k", -1),
        ("seed", -1),
        ("seed", 2**64),
    ],
)
def test_parameters_outside_their_range_are_named(field, value):
    with pytest.raises(BadParameters, match=field) as caught:
        SamplingParameters(**{field: value})
    assert caught.value.metadata == {"field": field}
