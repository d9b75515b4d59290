"""Which sessions' turns share the next forward.

Pure: no threads and no clock. Turns of a kind are served in the order in which
they came, and a session that was served comes again behind those that wait, so
sessions go round. An answer in flight waits for decoding turns, which are
therefore chosen first; but they leave a share of the rows to prefill, so that
a prompt always proceeds, and prefill beside them takes little more than that
share, so that a long prompt does not slow the answers.

The bound: a turn that comes while n turns of its kind wait is in one of the next
n + 1 batches, as the first of each kind is in every batch. Where a forward has
no rows for both, batches of the two kinds alternate: then in one of the next
2n + 2. So no session waits for another's whole answer or whole prompt, only for
one turn of each other session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kakeya_fleet.engine.sessions.turns import Turn

PREFILL_SHARE = 4
"""One of so many rows is left to prefill when both kinds wait."""


class TurnQueue:
    """Waiting turns of one verifier's sessions."""

    def __init__(self) -> None:
        # Used as ordered sets: a turn is equal to itself alone.
        self._decoding: dict[Turn[Any], None] = {}
        self._prefilling: dict[Turn[Any], None] = {}
        self._prefill_had_its_batch = False

    def __len__(self) -> int:
        return len(self._decoding) + len(self._prefilling)

    def add(self, turn: Turn[Any]) -> None:
        """Puts a turn behind those of its kind."""
        (self._decoding if turn.decodes else self._prefilling)[turn] = None

    def discard(self, turn: Turn[Any]) -> None:
        """Takes a turn back, if it still waits."""
        self._decoding.pop(turn, None)
        self._prefilling.pop(turn, None)

    def next_batch(self) -> list[tuple[Turn[Any], int]]:
        """Takes the turns of the next forward, each with the rows that it may use.

        At least one when any waits, of each session at most one, all together at
        most `row_counts[-1]` rows.
        """
        head = next(iter(self._decoding), None) or next(iter(self._prefilling), None)
        if head is None:
            return []
        row_counts = head.session.verifier.row_counts
        most = row_counts[-1]
        share = max(1, most // PREFILL_SHARE) if self._prefilling else 0
        if self._decoding and head.least_rows > most - share:
            return self._batch_of_one_kind(most)
        picked = _picked(self._decoding, most - share, frozenset())
        decoding = sum(rows for _, rows in picked)
        room = most
        if decoding:
            # Padding to the next count of rows costs as much as filling it.
            room = next(count for count in row_counts if count >= decoding + share)
        busy = frozenset(id(turn.session) for turn, _ in picked)
        picked += _picked(self._prefilling, room - decoding, busy)
        for turn, _ in picked:
            self.discard(turn)
        return picked

    def _batch_of_one_kind(self, most: int) -> list[tuple[Turn[Any], int]]:
        """Prefill and decoding in turns."""
        self._prefill_had_its_batch = not self._prefill_had_its_batch
        waiting = self._prefilling if self._prefill_had_its_batch else self._decoding
        picked = _picked(waiting, most, frozenset())
        for turn, _ in picked:
            self.discard(turn)
        return picked


def _picked(
    waiting: Iterable[Turn[Any]], room: int, busy: frozenset[int]
) -> list[tuple[Turn[Any], int]]:
    """The turns, in order, that fit `room` rows; `busy` are ids of sessions to pass over."""
    picked: list[tuple[Turn[Any], int]] = []
    served = set(busy)
    for turn in waiting:
        if room < 1:
            break
        if turn.least_rows <= room and id(turn.session) not in served:
            rows = min(turn.rows, room)
            picked.append((turn, rows))
            served.add(id(turn.session))
            room -= rows
    return picked
