from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.sessions.history import History

INDEX = st.integers(-8, 8)


@given(
    st.lists(st.integers(0, 9), max_size=6),
    st.integers(0, 6),
    st.tuples(*[st.none() | INDEX] * 2, st.none() | INDEX.filter(bool)),
    INDEX,
)
def test_a_prefix_is_the_list_it_was_however_the_history_grows(
    tokens: list[int], length: int, bounds, index: int
) -> None:
    history = History(tokens)
    length = min(length, len(tokens))
    prefix, expected = history.until(length), tokens[:length]
    history.extend([7, 7, 7])
    assert list(prefix) == expected
    assert prefix[slice(*bounds)] == expected[slice(*bounds)]
    if -length <= index < length:
        assert prefix[index] == expected[index]
    else:
        with pytest.raises(IndexError):
            prefix[index]


def test_a_prefix_is_not_longer_than_the_history() -> None:
    with pytest.raises(ValueError, match="prefix of 3"):
        History([1, 2]).until(3)


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5), st.sampled_from([10, 12]))
def test_the_ids_that_occur_are_marked_however_they_came(
    pieces: list[list[int]], size: int
) -> None:
    history = History(pieces[0] if pieces else ())
    for piece in pieces[1:]:
        history.extend(piece)
        assert np.flatnonzero(history.seen(size)).tolist() == sorted(set(history))
    assert np.flatnonzero(history.seen(size)).tolist() == sorted(set(history))
    assert len(history.seen(size)) == size


def test_what_is_marked_can_only_be_read() -> None:
    seen = History([1]).seen(4)
    with pytest.raises(ValueError, match="read-only"):
        seen[2] = True
