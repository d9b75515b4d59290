"""How many guesses go along: by how often they were right, and by what rows take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.proposers.guesses import (
    EXPECTED,
    GuessChances,
    RowSeconds,
    worth_guessing,
)
from kakeya_fleet.engine.proposers.ngram import LONGEST_GRAM, NgramProposer, Quote


def taking(first: float, a_row: float) -> RowSeconds:
    """Forwards of `first` seconds and of `a_row` more for each row."""
    seconds = RowSeconds()
    for rows in (1, 2, 1, 4, 1):
        seconds.seen(rows, first + a_row * rows)
    return seconds


def test_the_more_tokens_stood_together_the_surer_is_what_followed() -> None:
    chances = GuessChances()
    assert chances.of(Quote(1, (5, 6, 7)), 3) == pytest.approx(EXPECTED[:3])
    last = LONGEST_GRAM
    assert chances.of(Quote(last, (5, 6)), 2) == pytest.approx([EXPECTED[-1]] * 2)


def test_chances_are_those_of_the_text_and_of_its_latest_part() -> None:
    chances, quote = GuessChances(), Quote(2, (5, 6, 7))
    for _ in range(400):
        chances.seen(quote, (5, 9))
    first, second, third = chances.of(quote, 3)
    # Nothing is known of what stands behind a wrong one.
    assert first > 0.95
    assert second < 0.05
    assert third == pytest.approx(EXPECTED[3])
    for _ in range(100):
        chances.seen(quote, (9,))
    assert chances.of(quote, 1)[0] < 0.3


@given(st.floats(0.1, 5), st.floats(0.1, 5))
def test_rows_take_what_they_took(first: float, a_row: float) -> None:
    seconds = taking(first, a_row)
    assert seconds.of(8) == pytest.approx(first + 8 * a_row)


def test_a_row_more_takes_nothing_until_two_numbers_were_seen() -> None:
    seconds = RowSeconds()
    assert seconds.of(3) == 0
    seconds.seen(1, 2.0)
    assert seconds.of(1) == seconds.of(8) == pytest.approx(2.0)


def test_a_busy_machine_is_forgotten() -> None:
    seconds = taking(2.0, 0.1)
    seconds.seen(8, 90.0)
    assert seconds.of(8) > 20
    for index in range(1000):
        seconds.seen(1 + index % 2, 2.0 + 0.1 * (1 + index % 2))
    assert seconds.of(8) == pytest.approx(2.8, rel=0.1)


@given(st.lists(st.floats(0, 1), max_size=7), st.floats(0.1, 5), st.floats(0, 5), st.integers(1, 8))
def test_no_other_number_of_guesses_has_more_tokens_a_second(
    chances: list[float], first: float, a_row: float, rows: int
) -> None:
    seconds = taking(first, a_row)

    def speed(count: int) -> float:
        chance, tokens = 1.0, 1.0
        for each in chances[:count]:
            chance *= each
            tokens += chance
        return tokens / seconds.of(rows + count)

    chosen = speed(worth_guessing(chances, seconds, rows))
    assert chosen == pytest.approx(max(speed(count) for count in range(len(chances) + 1)))


def test_rows_that_take_nothing_have_all_guesses_along_and_dear_ones_none() -> None:
    chances = [0.2, 0.2, 0.2]
    assert worth_guessing(chances, RowSeconds(), 1) == len(chances)
    assert worth_guessing(chances, taking(0.0, 1.0), 1) == 0


def test_a_quote_says_how_much_stood_together() -> None:
    state = NgramProposer().open([1, 2, 3, 4, 9, 2, 3])
    ahead = state.behind(())
    assert ahead.quote(3) == Quote(2, (4, 9, 2))
    ahead.append(4)
    assert ahead.quote(6) == Quote(3, (9, 2, 3, 4, 9, 2))
    ahead.append(8)
    assert ahead.quote(1) is None
    assert state.length == 7
