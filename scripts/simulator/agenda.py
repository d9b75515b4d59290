"""Virtual time: what is to happen, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

LOOK_SECONDS = 0.1


class Agenda:
    """Actions at times in virtual seconds; of one time, in the order in which they were put."""

    def __init__(self) -> None:
        self.now = 0.0
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._actions)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Puts an action so many seconds from now."""
        heapq.heappush(self._actions, (self.now + seconds, next(self._order), action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Runs until `until` holds, looked at every `LOOK_SECONDS`, and no longer than `seconds`.

        Returns whether it came to hold; False when there is none.
        """
        end = self.now + seconds
        while self.now < end:
            if until is not None and until():
                return True
            stop = end if until is None else min(end, self.now + LOOK_SECONDS)
            while self._actions and self._actions[0][0] <= stop:
                self.now, _, action = heapq.heappop(self._actions)
                action()
            self.now = stop
        return until is not None and until()
