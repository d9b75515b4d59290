import io
from collections.abc import Generator, Sequence

from kakeya_fleet.node.cli.asking.prefill import (
    FIRST_PIECE,
    LARGEST_PIECE,
    next_size,
    pieces,
    text_of,
)
from kakeya_fleet.node.cli.terminal.status_line import StatusLine


class Clock:
    """Each piece takes as long as its ids at `rate` a second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def append(self, piece: Sequence[int]) -> None:
        self.now += len(piece) / self.rate


def run(count: int, rate: float) -> tuple[list[int], str]:
    screen = io.StringIO()
    clock = Clock(rate)
    sizes = []
    for piece in pieces(range(count), StatusLine(screen), clock):
        sizes.append(len(piece))
        clock.append(piece)
    return sizes, screen.getvalue()


def test_nobody_who_watches_is_one_append() -> None:
    assert [list(piece) for piece in pieces([1, 2, 3], None)] == [[1, 2, 3]]


def test_pieces_hold_every_id_once_and_grow_to_a_third_of_a_second() -> None:
    sizes, _ = run(40_000, rate=2_000)
    assert sum(sizes) == 40_000
    assert sizes[0] == FIRST_PIECE
    assert max(sizes) == 600


def test_a_short_wait_shows_nothing_and_a_long_one_leaves_nothing_behind() -> None:
    assert run(3_000, rate=100_000)[1] == ""
    _, shown = run(4_000, rate=1_000)
    assert "tok/s" in shown
    assert shown.endswith("\r\x1b[K")


def test_an_interrupted_prompt_takes_its_line_along() -> None:
    screen = io.StringIO()
    clock = Clock(100)
    reading = pieces(range(4_000), StatusLine(screen), clock)
    assert isinstance(reading, Generator)
    clock.append(next(reading))
    clock.append(next(reading))
    reading.close()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_sizes_follow_the_rate_within_bounds() -> None:
    assert next_size(256, 0.0) == 1024
    assert next_size(LARGEST_PIECE, 0.001) == LARGEST_PIECE
    assert next_size(256, 100.0) == 64


def test_the_line_tells_rate_and_remaining_time() -> None:
    text = text_of(1_000, 5_000, 2.0)
    assert "1,000 / 5,000 tokens, 500 tok/s, 8.00 s left" in text
