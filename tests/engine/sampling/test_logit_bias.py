from __future__ import annotations

import math

import numpy as np
import pytest

from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.logit_bias import MAX_BIASES, NO_BIAS, LogitBias


def refusal(call) -> str:
    with pytest.raises(BadParameters, match="logit_bias") as caught:
        call()
    assert caught.value.metadata == {"field": "logit_bias"}
    return str(caught.value)


@pytest.mark.parametrize("bias", [math.nan, math.inf, 10_000.1, -10_000.1])
def test_a_bias_outside_its_range_is_named_with_its_id_and_the_mend(bias: float) -> None:
    text = refusal(lambda: LogitBias.of({3: bias}))
    assert "id 3" in text
    assert "-inf bans" in text


def test_ids_are_unique_not_negative_and_not_too_many() -> None:
    assert "-1" in refusal(lambda: LogitBias.of({-1: 1.0}))
    assert "twice" in refusal(lambda: LogitBias(((7, 1.0), (2, 1.0), (7, 2.0))))
    refusal(lambda: LogitBias.of(dict.fromkeys(range(MAX_BIASES + 1), 1.0)))
    assert len(LogitBias.of(dict.fromkeys(range(MAX_BIASES), 1.0)).biases) == MAX_BIASES


def test_ids_outside_the_vocabulary_and_a_ban_of_all_ids_are_refused() -> None:
    NO_BIAS.check_vocabulary(1)
    LogitBias.of({9: 1.0}).check_vocabulary(10)
    assert "0 to 8" in refusal(lambda: LogitBias.of({2: 1.0, 9: 1.0}).check_vocabulary(9))
    all_but_one = LogitBias.of(dict.fromkeys(range(9), -math.inf))
    all_but_one.check_vocabulary(10)
    assert "bans all 9" in refusal(lambda: all_but_one.check_vocabulary(9))
    LogitBias.of({0: -math.inf, 1: -9.0}).check_vocabulary(2)


def test_biases_are_added_to_their_ids_alone_and_equal_ones_are_equal() -> None:
    one, other = LogitBias(((4, -math.inf), (1, 0.5))), LogitBias(((1, 0.5), (4, -math.inf)))
    assert one == other
    assert hash(one) == hash(other)
    assert one != LogitBias.of({1: 0.5})
    logits = np.arange(6, dtype=np.float64)
    one.add_to(logits)
    assert logits.tolist() == [0.0, 1.5, 2.0, 3.0, -math.inf, 5.0]
