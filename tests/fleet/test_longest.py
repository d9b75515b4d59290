"""The longest history within an amount of bytes, whatever steps the bytes take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.fleet.placement.longest import longest_history


@given(
    step=st.integers(1, 300),
    price=st.integers(1, 50),
    room=st.integers(0, 40_000),
    most=st.integers(1, 3000),
)
def test_it_is_the_last_that_fits_of_what_comes_in_segments(
    step: int, price: int, room: int, most: int
) -> None:
    def bytes_of(tokens: int) -> int:
        return -(-tokens // step) * step * price

    expected = max((n for n in range(1, most + 1) if bytes_of(n) <= room), default=0)
    assert longest_history(bytes_of, room, most) == expected


@given(room=st.integers(0, 1200), edge=st.integers(1, 400), least=st.integers(0, 600))
def test_bytes_that_fall_behind_a_window_are_found_by_its_edge(
    room: int, edge: int, least: int
) -> None:
    def bytes_of(tokens: int) -> int:
        return 2 * tokens if tokens <= edge else least + tokens

    expected = max((n for n in range(1, 501) if bytes_of(n) <= room), default=0)
    assert longest_history(bytes_of, room, 500, [edge, 0, 900]) == expected


def test_what_is_asked_for_is_never_much_longer_than_what_fits() -> None:
    asked: list[int] = []

    def bytes_of(tokens: int) -> int:
        asked.append(tokens)
        return tokens

    assert longest_history(bytes_of, 1000, 2**32 - 1) == 1000
    assert max(asked) < 4000
    assert len(asked) < 40


@pytest.mark.parametrize("most", [1, 7, 2**32 - 1])
def test_bytes_that_never_rise_are_those_of_all(most: int) -> None:
    assert longest_history(lambda _: 5, 5, most) == most
    assert longest_history(lambda _: 5, 4, most) == 0
