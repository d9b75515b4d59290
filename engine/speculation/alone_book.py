"""What a token takes that is decoded alone, for sessions that have not found out themselves.

A session with drafts learns it a little after its start (`engine.speculation.pace`), and until then
takes it for longer than it is: a forward beside drafts is slow. So whatever has a verifier for
itself and decodes without drafts says what that takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.speculation.latest_book import LatestBook
from kakeya_fleet.engine.speculation.trial_book import kind_of_length

LEAST_TOKENS = 8
"""Fewer, behind a draft, are of caches that have other weights in them."""


class AloneBook:
    """Of one verifier. One thread's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._found: LatestBook[tuple[CacheSpec, int], float] = LatestBook(clock)

    def made(self, seconds: Sequence[float], spec: CacheSpec, history_length: int) -> None:
        """One behind the other took so long, up to a history of `history_length` in a cache."""
        if len(seconds) >= LEAST_TOKENS:
            self._found.put(_kind(spec, history_length), statistics.median(seconds))

    def seconds(self, spec: CacheSpec, history_length: int) -> float:
        """Of a token; 0 where nobody knows."""
        return self._found.get(_kind(spec, history_length)) or 0.0


def _kind(spec: CacheSpec, history_length: int) -> tuple[CacheSpec, int]:
    """Caches are of one kind whatever room they have."""
    return replace(spec, capacity=0, grows=False), kind_of_length(history_length)
