"""The rule of attention, and the ring that keeps what it asks for."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.positions import (
    SLOT_MULTIPLE,
    attends,
    contiguous_placement,
    resident_count,
    ring_layout,
    ring_placement,
    round_up,
)

SMALL = st.integers(0, 9)
WINDOWS = st.integers(1, 40)
TILES = st.sampled_from([1, 8, 64])
WIDTH = 16


@pytest.mark.parametrize(
    ("query", "key", "expected"),
    [
        (0, 0, True),
        (5, 6, False),
        (100, 0, True),
        (100, 3, True),
        (100, 4, False),
        (100, 92, False),
        (100, 93, True),
        (100, 100, True),
        (2, 3, False),
    ],
)
def test_the_rule(query: int, key: int, expected: bool) -> None:
    assert attends(query, key, sink=4, window=8) is expected


@pytest.mark.parametrize(
    ("query", "key", "expected"),
    [
        (70, 0, True),
        (70, 63, True),
        (71, 0, False),
        (71, 63, False),
        (71, 64, True),
        (134, 64, True),
    ],
)
def test_a_tile_leaves_the_window_with_its_last_position(
    query: int, key: int, expected: bool
) -> None:
    assert attends(query, key, sink=0, window=8, tile=64) is expected


@given(length=st.integers(0, 200), sink=SMALL, window=WINDOWS, tile=TILES)
def test_resident_counts_what_the_next_query_attends_to(
    length: int, sink: int, window: int, tile: int
) -> None:
    seen = sum(attends(length, key, sink, window, tile) for key in range(length))
    assert resident_count(length, sink, window, tile) == seen


@given(count=st.integers(0, 10**6), multiple=st.integers(1, 1000))
def test_rounding_up(count: int, multiple: int) -> None:
    rounded = round_up(count, multiple)
    assert rounded % multiple == 0
    assert 0 <= rounded - count < multiple


@given(sink=SMALL, window=WINDOWS, end=st.integers(1, 400))
def test_held_is_the_latest_position_of_a_slot(sink: int, window: int, end: int) -> None:
    layout = ring_layout(sink, window, WIDTH, 10_000)
    latest: dict[int, int] = {}
    for position in range(end):
        latest[layout.slot(position)] = position
    for slot in range(layout.slots):
        assert layout.held(slot, end) == latest.get(slot)


# 3 + 46 + 15 slots are needed and 64 are there: none to spare.
@example(sink=3, window=46, tile=1, blocks=[(16, 16)] * 6 + [(16, 0), (1, 1), (16, 5), (3, 3)] * 3)
@example(sink=0, window=35, tile=15, blocks=[(16, 16)] * 6 + [(16, 0), (1, 1), (16, 5), (3, 3)] * 3)
@given(
    sink=SMALL,
    window=WINDOWS,
    tile=TILES,
    blocks=st.lists(st.tuples(st.integers(1, WIDTH), st.integers(0, WIDTH)), max_size=40),
)
def test_whatever_is_rejected_every_query_finds_its_keys_and_no_other(
    sink: int, window: int, tile: int, blocks: list[tuple[int, int]]
) -> None:
    """Plays forwards with rejections on real slots, each marked with who wrote it."""
    layout = ring_layout(sink, window, WIDTH, 10_000, tile=tile)
    written: dict[int, tuple[int, int]] = {}  # slot -> (position, forward)
    writer: dict[int, int] = {}  # position -> the forward that wrote it last
    start = 0
    for forward, (count, kept) in enumerate(blocks):
        for position in range(start, start + count):
            written[layout.slot(position)] = (position, forward)
            writer[position] = forward
        end = start + count
        for query in range(start, end):
            for slot in range(layout.slots):
                held = layout.held(slot, end)
                if held is not None and attends(query, held, sink, window, tile):
                    assert written[slot] == (held, writer[held])
            found = {layout.held(slot, end) for slot in range(layout.slots)}
            needed = {key for key in range(end) if attends(query, key, sink, window, tile)}
            assert needed <= found
        start += min(kept, count)


@given(sink=SMALL, window=st.integers(1, 5000), width=st.integers(1, 64))
def test_slots_are_whole_multiples_and_few(sink: int, window: int, width: int) -> None:
    layout = ring_layout(sink, window, width, 10_000)
    assert layout.slots % SLOT_MULTIPLE == 0
    assert sink + window + width - 1 <= layout.slots < sink + window + width - 1 + SLOT_MULTIPLE


def test_slots_beyond_the_positions_are_not_kept() -> None:
    assert ring_layout(4, 10**9, 16, 1000).slots == ring_layout(4, 1000, 16, 1000).slots


@given(sink=SMALL, window=WINDOWS, written=st.integers(0, 400), any_first=st.integers(-2, 400))
@example(sink=4, window=40, written=300, any_first=0)
def test_a_ring_has_what_its_slots_hold(
    sink: int, window: int, written: int, any_first: int
) -> None:
    placement = ring_placement(sink, window, 1024)

    def is_there(position: int) -> bool:
        if not 0 <= position < written:
            return False
        return placement.layout.held(placement.slot(position), written) == position

    oldest = written - placement.layout.ring
    for first in (any_first, oldest - 1, oldest, oldest + 1):
        for end in (first, first + 1, first + 3, sink, written, written + 1):
            there = first < end and all(is_there(position) for position in range(first, end))
            assert placement.has(first, end, written) is there, (first, end)


def test_what_is_never_written_over_is_there_once_it_was_written() -> None:
    placement = contiguous_placement(5000, origin=1024)
    assert placement.has(1024, 3000, 3000)
    for first, end in ((1023, 2000), (1024, 3001), (2000, 2000)):
        assert not placement.has(first, end, 3000)
