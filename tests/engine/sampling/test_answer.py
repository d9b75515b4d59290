"""What a generation has said, and what a grammar leaves of the choices behind it."""

from __future__ import annotations

import numpy as np
import pytest

from kakeya_fleet.engine.errors import BadParameters, GrammarRefused
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters, choose_token
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from tests.support.guides import RuleGuide, these

ROW = np.array([5.0, 4.0, 3.0, 2.0, 1.0], np.float32)
STOP = 4


def held(*texts: tuple[int, ...], stop_ids: frozenset[int] = frozenset({STOP})) -> Answer:
    return Answer(5, guide=these(5, texts), stop_ids=stop_ids)


def test_the_largest_of_what_is_allowed() -> None:
    assert choose_token(ROW, GREEDY, 0, answer=held((2, 1), (3, 1))) == 2
    assert choose_token(ROW, GREEDY, 0, answer=held((0, 1))) == 0


def test_a_sample_is_of_what_is_allowed_by_its_own_weights() -> None:
    answer = held((1,), (3,))
    parameters = [SamplingParameters(1.0, seed=seed) for seed in range(3000)]
    drawn = [choose_token(ROW, each, 7, answer=answer) for each in parameters]
    assert set(drawn) == {1, 3}
    share = 1.0 / (1.0 + np.exp(2.0 - 4.0))
    assert abs(drawn.count(1) / len(drawn) - share) < 0.03


def test_filters_are_over_what_is_allowed() -> None:
    answer = held((2,), (3,))
    only = SamplingParameters(1.0, top_k=1, seed=5)
    assert {choose_token(ROW, only, place, answer=answer) for place in range(50)} == {2}


def test_a_stop_id_only_where_the_grammar_may_end() -> None:
    answer = held((0,), (0, 1))
    stop_first = np.array([0.0, 0.0, 0.0, 0.0, 9.0], np.float32)
    assert choose_token(stop_first, GREEDY, 0, answer=answer) == 0
    answer.take([0])
    assert choose_token(stop_first, GREEDY, 1, answer=answer) == STOP
    assert not answer.is_complete
    answer.take([1])
    assert answer.is_complete


def test_what_fits_of_a_draft() -> None:
    answer = held((0, 1), (0, 1, 2))
    assert answer.fitting([0, 1, 2]) == 3
    assert answer.fitting([0, 2, 1]) == 1
    assert answer.fitting([0, 1, STOP]) == 3
    assert answer.fitting([0, 1, STOP, 0]) == 3
    # Behind a whole answer nothing follows, not even a stop id.
    assert answer.fitting([0, 1, 2, STOP]) == 3
    assert answer.fitting([STOP]) == 0
    assert answer.fitting([0, STOP]) == 1


def test_bias_and_grammar_that_leave_nothing_say_so() -> None:
    banned = SamplingParameters(logit_bias=LogitBias.of({0: -np.inf}))
    with pytest.raises(BadParameters, match="and the grammar"):
        choose_token(ROW, banned, 3, answer=held((0,)))


def test_a_dead_end_is_named() -> None:
    dead = Answer(5, guide=RuleGuide(5, lambda said: [] if said else [1]))
    dead.take([1])
    with pytest.raises(GrammarRefused, match="position 8"):
        choose_token(ROW, GREEDY, 8, answer=dead)


def test_taking_back_leaves_no_trace() -> None:
    answer = held((0, 0, 1))
    answer.take([0, 0])
    assert answer.counts.tolist() == [2, 0, 0, 0, 0]
    answer.take_back([0])
    assert answer.counts.tolist() == [1, 0, 0, 0, 0]
    assert answer.fitting([0, 1]) == 2
