"""The window of context vectors against a plain dictionary of positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.sessions.feature_window import FeatureWindow

WIDTH = 3
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=25)


def vectors(first, count):
    """Each vector says its position."""
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], WIDTH, axis=1)


@settings(deadline=None)
@given(steps=STEPS, positions=st.integers(1, 7), asked=st.integers(0, 60))
def test_it_keeps_the_latest_without_a_gap(
    steps: list[tuple[int, int]], positions: int, asked: int
) -> None:
    window = FeatureWindow(WIDTH, positions)
    known: list[int] = []
    end = 0
    seen = []
    for gap, count in steps:
        first = end + gap
        window.extend(first, vectors(first, count))
        known = (known if not gap else []) + list(range(first, first + count))
        known = known[-positions:]
        end = first + count
        assert (window.first, window.end) == (end - len(known), end)
        seen.append((window.since(window.first), list(known)))
    start, found = window.since(asked)
    assert found[:, 0].tolist() == [position for position in known if position >= asked]
    assert start == min(max(asked, window.first), window.end)
    # What was read before is still what it was.
    for (first, read), then in seen:
        assert read[:, 0].tolist() == then
        assert not then or first == then[0]


@settings(deadline=None)
@given(count=st.integers(0, 20), length=st.integers(0, 25))
def test_a_shorter_window_has_the_same_vectors_and_grows_alone(count: int, length: int) -> None:
    window = FeatureWindow(WIDTH, 8)
    window.extend(0, vectors(0, count))
    shorter = window.until(length)
    kept = [position for position in range(max(0, count - 8), count) if position < length]
    assert shorter.since(0)[1][:, 0].tolist() == kept
    shorter.extend(max(shorter.end, length), vectors(100, 4))
    assert window.since(0)[1][:, 0].tolist() == list(range(max(0, count - 8), count))


def test_what_is_known_and_what_is_of_another_width_is_refused() -> None:
    window = FeatureWindow(WIDTH)
    window.extend(5, vectors(5, 2))
    with pytest.raises(ValueError, match="known already"):
        window.extend(6, vectors(6, 1))
    for shape in ((2, WIDTH + 1), (WIDTH,)):
        with pytest.raises(ValueError, match="are not"):
            window.extend(7, np.zeros(shape, np.float32))
    assert window.end == 7


def test_what_was_read_cannot_be_written() -> None:
    window = FeatureWindow(WIDTH)
    window.extend(0, vectors(0, 2))
    with pytest.raises(ValueError, match="read-only"):
        window.since(0)[1][0] = 1.0
