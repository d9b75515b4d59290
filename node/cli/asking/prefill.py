"""A long prompt on its way into the keys and values: pieces, their rate, the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from kakeya_fleet.node.cli.terminal.quantities import seconds_text
from kakeya_fleet.node.cli.terminal.status_line import StatusLine

# A prompt that is done sooner shows nothing.
PATIENCE_SECONDS = 0.5
# Pieces take about so long, so that the bar moves; larger ones cost the node less.
PIECE_SECONDS = 0.3
FIRST_PIECE = 256
SMALLEST_PIECE = 64
LARGEST_PIECE = 8192
BAR_WIDTH = 24


def pieces(
    token_ids: Sequence[int],
    line: StatusLine | None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Sequence[int]]:
    """The ids in pieces to append one after the other; all at once when nobody watches.

    The time between two pieces is that of the append: it sizes the next, and is shown.
    """
    if line is None or not token_ids:
        yield token_ids
        return
    started = clock()
    size, done = FIRST_PIECE, 0
    try:
        while done < len(token_ids):
            began = clock()
            piece = token_ids[done : done + size]
            yield piece
            done += len(piece)
            now = clock()
            size = next_size(len(piece), now - began)
            if now - started >= PATIENCE_SECONDS and done < len(token_ids):
                line.show(text_of(done, len(token_ids), now - started))
    finally:
        line.clear()


def next_size(count: int, seconds: float) -> int:
    """Ids of the next piece, after one of `count` took `seconds`."""
    wanted = count * PIECE_SECONDS / max(seconds, 1e-6)
    # At most four times the last: the first piece may have met a warm start.
    return int(min(max(wanted, SMALLEST_PIECE), 4 * count, LARGEST_PIECE))


def text_of(done: int, total: int, seconds: float) -> str:
    """`reading the prompt ━━━━━━      1,024 / 4,096 tokens, 812 tok/s, 3.78 s left`."""
    rate = done / max(seconds, 1e-6)
    full = BAR_WIDTH * done // total
    left = seconds_text((total - done) / rate)
    bar = "━" * full + " " * (BAR_WIDTH - full)
    return f"reading the prompt {bar} {done:,} / {total:,} tokens, {rate:,.0f} tok/s, {left} left"
