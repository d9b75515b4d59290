"""Which of two ways carries a link's tensors of one size sooner: both are tried in turn. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from enum import Enum

SAMPLES = 6
"""Tensors by each way before a verdict; even, so that payloads by turns count alike."""
WORTH = 0.9
"""A road stays when it takes at most this share of what chunks take."""
# A road that has become so much slower than chunks were is compared anew.
DRIFTED = 1.2
RECENT = 15


class Verdict(Enum):
    """How a trial stands."""

    OPEN = "open"
    ROAD = "road"
    CHUNKS = "chunks"


def size_class(byte_count: int) -> int:
    """Tensors of one class differ by less than twice in size."""
    return byte_count.bit_length()


class RoadTrial:
    """The trial of one size class, in seconds a byte."""

    def __init__(self) -> None:
        self._turn = 0
        self._road: deque[float] = deque(maxlen=RECENT)
        self._chunks: deque[float] = deque(maxlen=RECENT)
        self._verdict = Verdict.OPEN

    @property
    def verdict(self) -> Verdict:
        """How it stands."""
        return self._verdict

    @property
    def road_pace(self) -> float:
        """Median seconds a byte by the road."""
        return statistics.median(self._road)

    @property
    def chunk_pace(self) -> float:
        """Median seconds a byte in chunks."""
        return statistics.median(self._chunks)

    @property
    def takes_road(self) -> bool:
        """By which way the next tensor goes."""
        if self._verdict is not Verdict.OPEN:
            return self._verdict is Verdict.ROAD
        # Thue and Morse's sequence: no period of the payloads falls in with it.
        return self._turn.bit_count() % 2 == 1

    def set_out(self) -> None:
        """A tensor went by that way."""
        self._turn += self._verdict is Verdict.OPEN

    def add(self, seconds_a_byte: float, *, by_road: bool) -> None:
        """Takes what one tensor took."""
        (self._road if by_road else self._chunks).append(seconds_a_byte)
        if self._verdict is Verdict.OPEN:
            if min(len(self._road), len(self._chunks)) >= SAMPLES:
                is_faster = self.road_pace <= WORTH * self.chunk_pace
                self._verdict = Verdict.ROAD if is_faster else Verdict.CHUNKS
            return
        # Against what chunks took before the verdict: none has travelled since.
        is_known = self._verdict is Verdict.ROAD and len(self._road) == RECENT
        if is_known and self.road_pace > DRIFTED * self.chunk_pace:
            self._reopen()

    def _reopen(self) -> None:
        self._road.clear()
        self._chunks.clear()
        self._verdict = Verdict.OPEN
