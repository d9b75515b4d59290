"""How sure a drafter is, and what it learns of that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kakeya_fleet.engine.proposers.sureness import (
    EXPECTED,
    LEADS,
    MARGINS,
    DraftedTokens,
    Sureness,
    Worth,
    kind_of,
)
from kakeya_fleet.engine.sampling.choice import (
    SamplingParameters,
    drawn_token,
    likeliest_token,
)
from kakeya_fleet.engine.sampling.randomness import uniform

LOGITS = arrays(np.float32, 12, elements=st.floats(-8, 8, width=32))


@pytest.mark.parametrize(("is_drawn", "borders"), [(False, LEADS), (True, MARGINS)])
def test_closer_choices_are_of_kinds_that_are_right_less_often(
    *, is_drawn: bool, borders: tuple[float, ...]
) -> None:
    sureness = Sureness()
    margins = [0.0, *borders, math.inf]
    chances = [sureness.chance(kind_of(each, is_drawn=is_drawn)) for each in margins]
    assert chances == pytest.approx([*EXPECTED, EXPECTED[-1]])
    assert sorted(chances) == chances


def test_greedy_and_drawn_tokens_are_kinds_of_their_own() -> None:
    kinds = {kind_of(each, is_drawn=drawn) for each in (0.0, 1.0, 0.04) for drawn in (True, False)}
    assert len(kinds) == 5


@given(LOGITS)
def test_the_likeliest_token_leads_by_what_lies_behind_it(row: np.ndarray) -> None:
    token, lead = likeliest_token(row)
    assert token == int(row.argmax())
    assert lead == pytest.approx(float(row[token]) - float(np.delete(row, token).max()), abs=1e-6)


@given(LOGITS, st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.floats(0.2, 2.0))
def test_a_margin_is_what_the_number_could_move_by(
    row: np.ndarray, seed: int, position: int, temperature: float
) -> None:
    drawing = SamplingParameters(temperature=temperature, seed=seed).drawing
    assert drawing is not None
    token, margin = drawn_token(row, drawing, position)
    weights = np.exp((row.astype(np.float64) - row.max()) / temperature)
    ends = np.cumsum(weights / weights.sum())
    number = uniform(seed, position)
    begin = ends[token - 1] if token else 0.0
    assert margin == pytest.approx(min(number - begin, ends[token] - number), abs=1e-6)


def test_what_came_tells_of_the_tokens_up_to_the_first_wrong_one() -> None:
    sureness = Sureness()
    expected = DraftedTokens(sureness)
    before = [sureness.chance(kind) for kind in range(4)]
    expected.expect((7,), (1, 2, 3, 4), (0, 1, 2, 3))
    expected.committed((7, 1))
    expected.committed((2, 9))
    expected.committed((4,))
    after = [sureness.chance(kind) for kind in range(4)]
    assert after[0] > before[0]
    assert after[1] > before[1]
    assert after[2] < before[2]
    assert after[3] == before[3]


def test_behind_another_token_than_was_assumed_nothing_is_told() -> None:
    sureness = Sureness()
    expected = DraftedTokens(sureness)
    expected.expect((7,), (1,), (0,))
    expected.committed((8, 1))
    assert sureness.chance(0) == pytest.approx(EXPECTED[0])


def test_chances_become_those_of_the_latest_tokens() -> None:
    sureness = Sureness()
    for is_right in (True, False):
        for _ in range(2000):
            sureness.seen(0, is_right=is_right)
        assert sureness.chance(0) == pytest.approx(float(is_right), abs=0.02)


def test_a_token_is_worth_what_all_streams_make_meanwhile_and_one_pause_is_none_of_it() -> None:
    now = 0.0
    worth = Worth(lambda: now)
    worth.drafted(4, 0.8)
    assert worth.least_chance == 0
    worth.asked(0)
    for committed, seconds in ((4, 1.0), (0, 5.0), (4, 0.5), (4, 60.0), (4, 1.0)):
        now += seconds
        worth.asked(committed)
    assert worth.least_chance == pytest.approx(4.0 * 0.2)
    for _ in range(9):
        worth.drafted(0, 0.5)
        worth.drafted(2, 0.2)
    assert worth.least_chance == pytest.approx(4.0 * 0.1)
