from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.engine.sampling.count_penalties import penalise_counts


def test_openais_formula() -> None:
    logits = np.array([1.0, -2.0, 3.0, 0.5])
    counts = np.array([0, 1, 3, 0])
    expected = [
        logit - count * 0.5 - (count > 0) * 0.25
        for logit, count in zip(logits.tolist(), counts.tolist(), strict=True)
    ]
    penalise_counts(logits, counts, 0.5, 0.25)
    assert logits.tolist() == expected


@pytest.mark.parametrize("field", ["frequency_penalty", "presence_penalty"])
@pytest.mark.parametrize("value", [2.01, -2.01, float("nan"), float("inf")])
def test_outside_openais_range_is_refused_by_name(field: str, value: float) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(BadParameters) as caught:
        SamplingParameters(**given)
    assert caught.value.metadata["field"] == field


def test_the_prompt_does_not_count_and_what_was_said_elsewhere_does() -> None:
    row = np.array([1.0, 1.4, 0.0], np.float32)
    parameters = SamplingParameters(presence_penalty=0.5)
    assert choose_token(row, parameters, 9, answer=Answer(3)) == 1
    assert choose_token(row, parameters, 9, answer=Answer(3, said=[1])) == 0


def test_frequency_grows_with_each_time_and_presence_does_not() -> None:
    row = np.array([0.0, 1.0], np.float32)
    often = Answer(2, said=[1] * 5)
    assert choose_token(row, SamplingParameters(frequency_penalty=0.3), 0, answer=often) == 0
    assert choose_token(row, SamplingParameters(presence_penalty=0.3), 0, answer=often) == 1
    below = SamplingParameters(frequency_penalty=-2.0)
    assert choose_token(-row, below, 0, answer=often) == 1


def test_penalties_need_what_was_said() -> None:
    with pytest.raises(ValueError, match="said"):
        choose_token(np.zeros(2, np.float32), SamplingParameters(frequency_penalty=1.0), 0)
