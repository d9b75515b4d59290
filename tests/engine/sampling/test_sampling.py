from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import BadParameters, InvariantViolated
from kakeya_fleet.engine.sampling.choice import (
    GREEDY,
    SamplingParameters,
    choose,
    choose_token,
    drawn_token,
)
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sampling.randomness import uniform

LOGITS = np.array([2.0, 0.5, 1.5, -1.0, 1.0, -np.inf, 0.0, 1.25], np.float32)
POSITIONS = range(200)


def chosen_at(
    row: Logits, parameters: SamplingParameters, seen: NDArray[np.bool_] | None = None
) -> set[int]:
    return {choose_token(row, parameters, position, seen) for position in POSITIONS}


def marked(ids: Iterable[int], size: int = 8) -> NDArray[np.bool_]:
    seen = np.zeros(size, bool)
    seen[list(ids)] = True
    return seen


def test_a_choice_depends_on_its_position_alone_not_on_the_block() -> None:
    parameters = SamplingParameters(1.0, seed=9)
    rows = np.tile(LOGITS, (32, 1))
    whole = choose(rows, parameters, 100)
    assert len(set(whole)) > 2
    pieces = [choose(rows[:size], parameters, 100 + at) for at, size in ((0, 7), (7, 25))]
    assert [*pieces[0], *pieces[1]] == whole
    assert choose(rows, parameters, 101)[:-1] == whole[1:]


def test_greedy_takes_the_lowest_id_of_the_largest() -> None:
    rows = np.array([[0, 3, 3, 1], [5, 5, 5, 5]], np.float32)
    assert choose(rows, GREEDY, 0) == [1, 0]
    assert all(type(token) is int for token in choose(rows, GREEDY, 0))


def test_sampled_is_the_inverse_of_the_cumulative_distribution_in_the_order_of_ids() -> None:
    parameters = SamplingParameters(0.7, seed=3)
    weights = np.exp((LOGITS.astype(np.float64) - 2.0) / 0.7)
    below = np.cumsum(weights) / weights.sum()
    for position in POSITIONS:
        wanted = int(np.argmax(below > uniform(3, position)))
        assert choose_token(LOGITS, parameters, position) == wanted


def test_ties_at_the_edge_of_top_k_and_top_p_keep_the_lowest_ids() -> None:
    # Enough ids that a sort which is not stable mixes them.
    row = np.tile(np.array([0, 1], np.float32), 200)
    for parameters in (
        SamplingParameters(1.0, top_k=2, seed=1),
        SamplingParameters(1e-3, top_p=1.9 / 200, seed=1),
    ):
        assert chosen_at(row, parameters) == {1, 3}


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    st.floats(0, 100),
    st.floats(0, 1),
    st.integers(0, 30),
    st.integers(0, 2**64 - 1),
    st.floats(0, 1),
)
def test_every_choice_is_a_possible_id(
    logits: list[float], temperature: float, top_p: float, top_k: int, seed: int, min_p: float
) -> None:
    row = np.array(logits, np.float32)
    chosen = choose_token(row, SamplingParameters(temperature, top_p, top_k, seed, min_p), 5)
    assert 0 <= chosen < len(row)
    rank = np.flatnonzero(np.argsort(-row, kind="stable") == chosen)[0]
    assert rank < (top_k or len(row))
    if temperature == 0.0:
        assert rank == 0


def test_a_vanishing_temperature_is_greedy() -> None:
    assert chosen_at(LOGITS, SamplingParameters(5e-324, seed=1)) == {0}


@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 1e-12}, {"min_p": 1.0}])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_the_tightest_filter_is_greedy_even_where_probabilities_round_to_the_same(
    filters: dict[str, Any], temperature: float
) -> None:
    # exp of the difference is 1.0 in float64, so only logits tell them apart.
    row = np.array([0.0, 1e-30, -1.0], np.float32)
    expected = {0, 1} if "min_p" in filters else {1}
    assert chosen_at(row, SamplingParameters(temperature, seed=4, **filters)) == expected


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest() -> None:
    # exp(-0.75) = 0.472 and exp(-1) = 0.368 of the largest.
    assert chosen_at(LOGITS, SamplingParameters(1.0, seed=5, min_p=0.47)) == {0, 2, 7}
    assert chosen_at(LOGITS, SamplingParameters(1.0, seed=5, min_p=0.48)) == {0, 2}
    # At temperature 2 they are 0.687 and 0.607: probabilities after it count.
    assert chosen_at(LOGITS, SamplingParameters(2.0, seed=5, min_p=0.6)) == {0, 2, 4, 7}


def test_top_p_counts_within_what_top_k_left() -> None:
    # Of all, 0 and 2 have 0.58; of the two that top-k keeps, 0 alone has 0.62.
    assert chosen_at(LOGITS, SamplingParameters(1.0, top_p=0.6, top_k=2, seed=6)) == {0}
    assert chosen_at(LOGITS, SamplingParameters(1.0, top_p=0.6, seed=6)) == {0, 2, 7}


def test_a_bias_comes_before_every_filter_and_a_banned_id_is_never_chosen() -> None:
    bias = LogitBias.of({0: -math.inf, 3: 4.0})
    assert choose_token(LOGITS, SamplingParameters(logit_bias=bias), 0) == 3
    assert chosen_at(LOGITS, SamplingParameters(1.0, top_k=2, seed=7, logit_bias=bias)) == {3, 2}
    lifted = LogitBias.of({5: 1e4})
    assert 5 not in chosen_at(LOGITS, SamplingParameters(1.0, seed=7, logit_bias=lifted))


def test_a_penalty_divides_what_is_positive_and_multiplies_what_is_negative() -> None:
    row = np.array([2.0, 1.5, -1.0, -1.5, 0.0], np.float32)
    heavy = SamplingParameters(repetition_penalty=2.0)
    assert choose_token(row, heavy, 0, marked([], 5)) == 0
    assert choose_token(row, heavy, 0, marked([0], 5)) == 1
    # 1.0, 0.75 and 0: only among the negative ones does the penalty change the order.
    assert choose_token(row[2:], heavy, 0, marked([0], 3)) == 2
    negative = row[2:4]
    assert choose_token(negative, heavy, 0, marked([], 2)) == 0
    assert choose_token(negative, heavy, 0, marked([0], 2)) == 1
    encouraging = SamplingParameters(repetition_penalty=0.5)
    assert choose_token(row, encouraging, 0, marked([1], 5)) == 1


def test_the_bias_is_penalised_with_the_logit_not_after_it() -> None:
    # (1 + 4) / 4 = 1.25 is above 1.2; 1 / 4 + 4 would be above 3 as well.
    row = np.array([1.0, 1.2, 3.0], np.float32)
    parameters = SamplingParameters(repetition_penalty=4.0, logit_bias=LogitBias.of({0: 4.0}))
    assert choose_token(row[:2], parameters, 0, marked([0], 2)) == 0
    assert choose_token(row, parameters, 0, marked([0], 3)) == 2


def test_a_penalty_without_the_history_is_a_defect_of_the_caller() -> None:
    with pytest.raises(ValueError, match="history"):
        choose_token(LOGITS, SamplingParameters(repetition_penalty=1.1), 0)


def test_a_drafter_draws_as_its_verifier_and_guesses_where_it_has_no_numbers() -> None:
    rng = np.random.default_rng(12)
    logits = rng.standard_normal((40, 30), np.float32)
    sampling = SamplingParameters(temperature=0.9, top_p=0.8, top_k=20, min_p=0.01, seed=6)
    assert sampling.drawing is not None
    drawn = [drawn_token(row, sampling.drawing, 50 + at) for at, row in enumerate(logits)]
    assert [token for token, _ in drawn] == choose(logits, sampling, 50)
    assert GREEDY.drawing is None
    for bad in (np.nan, np.inf):
        logits[3, 7] = bad
        assert drawn_token(logits[3], sampling.drawing, 53) == (7, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_mean_nothing_end_in_an_error(bad: float) -> None:
    row = np.full(4, -np.inf, np.float32) if bad == -math.inf else LOGITS.copy()
    row[1] = bad
    biased = SamplingParameters(logit_bias=LogitBias.of({1: -math.inf}))
    for parameters in (GREEDY, SamplingParameters(1.0), biased):
        with pytest.raises(InvariantViolated) as caught:
            choose_token(row, parameters, 0)
        assert caught.value.metadata["invariant"] == "finite_logits"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banning_all_that_the_model_allows_is_the_requests_fault(temperature: float) -> None:
    row = np.array([-np.inf, 1.0, -np.inf], np.float32)
    parameters = SamplingParameters(temperature, logit_bias=LogitBias.of({1: -math.inf}))
    parameters.check_vocabulary(3)
    with pytest.raises(BadParameters, match="logit_bias") as caught:
        choose_token(row, parameters, 0)
    assert caught.value.metadata == {"field": "logit_bias"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            (name, bad)
            for name in ("temperature", "top_p", "min_p", "repetition_penalty")
            for bad in (math.nan, math.inf, -0.1)
        ),
        ("temperature", 100.1),
        ("top_p", 1.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 64.1),
        ("top_k", -1),
        ("top_log_probabilities", -1),
        ("top_log_probabilities", 21),
        ("seed", -1),
        ("seed", 2**64),
    ],
)
def test_parameters_outside_their_range_are_named(field: str, value: float) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(BadParameters, match=field) as caught:
        SamplingParameters(**given)
    assert caught.value.metadata == {"field": field}
