from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.errors import BadParameters, InvariantViolated
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sessions.acceptance import accepted_prefix, decide
from kakeya_fleet.engine.sessions.history import History

TOKENS = st.lists(st.integers(0, 3), max_size=6)


@given(TOKENS, TOKENS)
def test_the_prefix_is_the_longest_common_one(draft: list[int], chosen: list[int]) -> None:
    count = accepted_prefix(draft, chosen)
    assert draft[:count] == chosen[:count]
    if count < min(len(draft), len(chosen)):
        assert draft[count] != chosen[count]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=7), st.data())
def test_accepted_tokens_then_one_of_the_verifiers_own(own: list[int], data) -> None:
    drafted = st.lists(st.integers(0, 4), min_size=len(own) - 1, max_size=len(own) - 1)
    draft = data.draw(drafted, label="draft")
    choices = decide(np.eye(5, dtype=np.float32)[own], draft, GREEDY, History([0] * 10))
    assert [choice.token_id for choice in choices] == own[: accepted_prefix(draft, own) + 1]


def test_rows_behind_a_mismatch_are_not_looked_at() -> None:
    logits = np.array([[0, 1], [np.nan, np.nan]], np.float32)
    (choice,) = decide(logits, [0], GREEDY, History())
    assert choice.token_id == 1


@pytest.mark.parametrize(
    ("unchoosable", "error"),
    [([np.nan, 0, 0], InvariantViolated), ([-np.inf, 0, -np.inf], BadParameters)],
)
def test_a_draft_takes_back_no_token_that_comes_without_it(unchoosable, error) -> None:
    parameters = SamplingParameters(logit_bias=LogitBias(((1, -np.inf),)))
    logits = np.array([[0, 5, 2], unchoosable], np.float32)
    alone = decide(logits[:1], [], parameters, History([0]))
    assert decide(logits, [2], parameters, History([0])) == alone
    with pytest.raises(error):
        decide(logits[1:], [], parameters, History([0, 2]))
