"""The longest history for which a number of bytes suffices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise


def longest_history(
    bytes_of: Callable[[int], int], room_bytes: int, most: int, edges: Iterable[int] = ()
) -> int:
    """The most tokens, up to `most`, whose `bytes_of` are within `room_bytes`; 0 for none.

    Bytes never fall as tokens rise, but from one of the `edges` to the next token: a layer of a
    sliding window may take fewer once the history is longer than that.
    """
    borders = sorted({0, most, *(edge for edge in edges if 0 < edge < most)}, reverse=True)
    for end, before in pairwise(borders):
        found = _within(bytes_of, room_bytes, before + 1, end)
        if found:
            return found
    return 0


def _within(bytes_of: Callable[[int], int], room_bytes: int, first: int, last: int) -> int:
    """That of the tokens from `first` to `last`, over which bytes never fall; 0 for none."""
    if bytes_of(first) > room_bytes:
        return 0
    fits, step = first, 1
    # By leaps that double: what is asked for then is never much longer than what fits.
    while fits < last and bytes_of(min(last, fits + step)) <= room_bytes:
        fits = min(last, fits + step)
        step *= 2
    end = min(last, fits + step)
    while end - fits > 1:
        middle = (fits + end) // 2
        if bytes_of(middle) <= room_bytes:
            fits = middle
        else:
            end = middle
    return fits
