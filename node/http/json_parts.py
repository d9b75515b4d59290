"""What a JSON body is made of, counted before it is read, in pieces."""

from __future__ import annotations

import numpy as np

PIECE_BYTES = 1 << 18
"""Counted in some 1 ms."""

_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
_PARTS = [ord(each) for each in "[{:"]


class JsonParts:
    """Counts commas, and lists, objects and members, outside of strings.

    Of bytes in UTF-8, taken in pieces. What is no JSON is counted in some way: whoever reads it
    comes no further than where it is still right.
    """

    def __init__(self) -> None:
        self.comma_count = 0
        self.part_count = 0
        """Lists, objects and the members of objects."""
        self._is_inside = False
        self._is_escaped = False

    def add(self, piece: bytes) -> None:
        """Counts the next bytes."""
        array = np.frombuffer(piece, np.uint8)
        if not len(array):
            return
        quotes = array == _QUOTE
        self._drop_escaped(array, quotes)
        # Of each byte whether an odd number of quotes is behind it; a count modulo 256 tells it.
        is_inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool) ^ self._is_inside
        outside = ~is_inside
        self.comma_count += int(np.count_nonzero((array == _COMMA) & outside))
        for each in _PARTS:
            self.part_count += int(np.count_nonzero((array == each) & outside))
        self._is_inside = bool(is_inside[-1])

    def _drop_escaped(self, array: np.ndarray, quotes: np.ndarray) -> None:
        """Takes from `quotes` those behind an odd number of backslashes."""
        first = 0
        if self._is_escaped:
            # A backslash that is escaped begins no run.
            quotes[0] = False
            first = 1
        self._is_escaped = False
        places = np.flatnonzero(array[first:] == _BACKSLASH) + first
        if not len(places):
            return
        breaks = np.flatnonzero(np.diff(places) != 1)
        begins = places[np.concatenate(([0], breaks + 1))]
        ends = places[np.concatenate((breaks, [len(places) - 1]))] + 1
        escaped = ends[(ends - begins) % 2 == 1]
        if len(escaped) and escaped[-1] == len(array):
            self._is_escaped = True
            escaped = escaped[:-1]
        quotes[escaped] = False
