from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sampling.log_probabilities import log_probability_of
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sessions.acceptance import Choice, decide
from kakeya_fleet.engine.sessions.history import History


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=90),
    st.integers(0, 20),
    st.data(),
)
def test_they_are_the_logarithm_of_the_softmax(logits: list[float], count: int, data) -> None:
    token_id = data.draw(st.integers(0, len(logits) - 1))
    largest = max(logits)
    log_sum = largest + math.log(math.fsum(math.exp(logit - largest) for logit in logits))
    value, alternatives = log_probability_of(np.array(logits, np.float32), token_id, count)
    assert value == pytest.approx(logits[token_id] - log_sum, abs=1e-9)
    ranked = sorted(range(len(logits)), key=lambda index: (-logits[index], index))
    assert [pair[0] for pair in alternatives] == ranked[:count]
    for index, other in alternatives:
        assert other == pytest.approx(logits[index] - log_sum, abs=1e-9)


def test_impossible_ids_are_no_alternatives() -> None:
    row = np.array([-np.inf, 0.0, -np.inf, 0.0], np.float32)
    value, alternatives = log_probability_of(row, 3, 4)
    assert value == pytest.approx(math.log(0.5))
    assert alternatives == (
        (1, pytest.approx(math.log(0.5))),
        (3, pytest.approx(math.log(0.5))),
    )


def test_they_are_the_models_own_whatever_chose_the_token() -> None:
    row = np.array([[3.0, 1.0, 0.0, 2.0]], np.float32)
    plain = SamplingParameters(top_log_probabilities=2)
    shaped = SamplingParameters(
        5.0,
        top_k=1,
        repetition_penalty=3.0,
        logit_bias=LogitBias.of({0: -math.inf, 2: 8.0}),
        top_log_probabilities=2,
    )
    (own,) = decide(row, [], plain, History([0]))
    (other,) = decide(row, [], shaped, History([0]))
    assert (own.token_id, other.token_id) == (0, 2)
    assert [pair[0] for pair in own.alternatives] == [0, 3]
    assert other.alternatives == own.alternatives
    assert own.log_probability == own.alternatives[0][1]
    assert other.log_probability == pytest.approx(own.log_probability - 3.0)


def test_none_are_worked_out_unless_asked_for() -> None:
    row = np.zeros((1, 3), np.float32)
    assert decide(row, [], SamplingParameters(), History()) == [Choice(0, None, ())]
    (chosen,) = decide(row, [], SamplingParameters(top_log_probabilities=0), History())
    assert chosen == Choice(0, pytest.approx(math.log(1 / 3)), ())
