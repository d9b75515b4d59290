from __future__ import annotations

import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.proposers.ngram import LONGEST_GRAM, NgramProposer

TEXT = st.lists(st.integers(0, 3), max_size=40)


def propose(prefix, block_size: int = 6, assumed=()):
    return list(NgramProposer().open(prefix).propose(assumed, block_size, 0).token_ids)


def searched(text, block_size, earliest_end: int = 0):
    """The definition, by search."""
    for size in range(min(LONGEST_GRAM, len(text) - 1), 0, -1):
        gram = text[len(text) - size :]
        for end in range(len(text) - 1, max(size, earliest_end) - 1, -1):
            if text[end - size : end] == gram:
                drafted = []
                for offset in range(block_size):
                    drafted.append([*text, *drafted][end + offset])
                return drafted
    return []


@given(TEXT, st.integers(1, 16))
def test_the_index_finds_what_a_search_finds(text: list[int], block_size: int) -> None:
    assert propose(text, block_size) == searched(text, block_size)


@given(TEXT, st.lists(st.integers(0, 3), max_size=12), st.integers(1, 16), st.data())
def test_assumed_tokens_count_as_committed_and_are_not_kept(
    text: list[int], assumed: list[int], block_size: int, data
) -> None:
    state = NgramProposer().open([])
    at = 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        state.commit(text[at:end])
        at = end
        state.propose(assumed, 3, 0)
    ahead = state.propose(assumed, block_size, 0)
    assert list(ahead.token_ids) == searched([*text, *assumed], block_size)
    assert state.length == len(text)
    assert list(state.propose([], block_size, 0).token_ids) == searched(text, block_size)


def test_the_longest_match_wins_and_among_equals_the_latest() -> None:
    assert propose([1, 2, 3, 7, 9, 3, 8, 1, 2, 3], 1) == [7]
    assert propose([5, 1, 6, 5, 2, 6, 5], 1) == [2]


def test_periodic_text_is_drafted_to_the_full_length() -> None:
    assert propose([1, 2, 3, 1, 2], 10) == [3, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert propose([4, 4], 5) == [4, 4, 4, 4, 4]


def test_nothing_is_drafted_without_a_match() -> None:
    assert propose([]) == []
    assert propose([1]) == []
    assert propose([1, 2, 3, 4]) == []


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 30))
def test_old_ngrams_are_forgotten_and_the_recent_ones_are_not(text: list[int], limit: int) -> None:
    state = NgramProposer(indexed_tokens=limit).open(text)
    assert sum(len(index) for index in state._indices) <= LONGEST_GRAM * limit
    drafted = list(state.propose([], 4, 0).token_ids)
    assert drafted == searched(text, 4, earliest_end=len(text) - limit)


def test_memory_is_bounded_by_the_index_not_by_the_text() -> None:
    rng = random.Random(1)
    tracemalloc.start()
    state = NgramProposer(indexed_tokens=1024).open([])
    for _ in range(8):
        state.commit([rng.randrange(50_000) for _ in range(1_000)])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1024 * LONGEST_GRAM * 140


def test_time_is_measured_by_the_clock_given() -> None:
    ticks = iter([1.0, 1.5])
    draft = NgramProposer(clock=lambda: next(ticks)).open([1, 1]).propose([], 2, 0)
    assert (draft.compute_seconds, draft.round_trip_seconds) == (0.5, 0.5)
