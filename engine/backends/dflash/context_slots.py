"""Which slots of a growing memory hold the latest positions of a context. Pure."""

from __future__ import annotations

SLACK_DIVISOR = 4
"""A quarter of slots more than positions: a position is moved to the front four times at most."""
FIRST_SLOTS = 256


class ContextSlots:
    """Positions `first` to `end`, the latest `positions` at most, in slots one behind the other."""

    def __init__(self, positions: int, most_slots: int) -> None:
        """Of none; memory never has more than `most_slots`."""
        self._positions = positions
        self._most_slots = most_slots
        self._begin = 0
        self._count = 0
        self._end = 0

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        return self._end - self._count

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        return self._end

    def restart(self, position: int) -> None:
        """Forgets all; the next position is `position`."""
        self._begin = self._count = 0
        self._end = position

    @property
    def _kept(self) -> slice:
        """The slots of what is there."""
        return slice(self._begin, self._begin + self._count)

    def _passed(self, given: int) -> int:
        """How many of `given` positions from `end` on are to be kept: the last ones.

        Drops the oldest for them, and counts them as passed, not as there yet.
        """
        self._end += given
        added = min(given, self._positions)
        dropped = max(0, self._count + added - self._positions)
        self._begin += dropped
        self._count -= dropped
        return added

    def _slots_for(self, rows: int, there: int) -> int | None:
        """Slots of the memory that what is kept moves to the front of, for `rows` behind it.

        It has `there` now; the same number is that memory itself, and None says that
        there is room without moving.
        """
        needed = self._count + rows
        if self._begin + needed <= there:
            return None
        if there == self._most_slots or needed + there // SLACK_DIVISOR <= there:
            return there
        return min(self._most_slots, max(needed, 2 * there, FIRST_SLOTS))
