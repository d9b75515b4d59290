"""How long the next batch waits for those who shared the last one.

Two sessions that came at different times would alternate for ever, each alone
in its forward while the other's tokens are handed out, though one forward of
both costs hardly more than one of either. So those who were just served are
waited for, for a small part of what a forward takes, when somebody else waits
already. One who came too late is not waited for again until it comes in time:
it waits for a slow proposer, or has ended. A session alone never waits.

Pure: the caller says what time it is, in monotonic seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

LINGER_SHARE = 0.1
"""Of the last batch's seconds: the most that waiting can cost a step."""
MOST_LINGER_SECONDS = 0.005
"""Handing out tokens and asking again takes less than this on a machine that keeps up."""
REMEMBERED_SESSIONS = 4096


class Gathering:
    """Whom the next batch waits for. Sessions are named by a number of the caller's."""

    def __init__(self) -> None:
        self._ended_at = 0.0
        self._linger = 0.0
        self._expected: set[int] = set()
        # When the last batch of each session ended, the latest last.
        self._served: OrderedDict[int, float] = OrderedDict()
        self._late: set[int] = set()

    def served(self, sessions: Iterable[int], began: float, ended: float) -> None:
        """A batch of these sessions ran."""
        self._ended_at = ended
        self._linger = min(LINGER_SHARE * (ended - began), MOST_LINGER_SECONDS)
        for session in sessions:
            self._served[session] = ended
            self._served.move_to_end(session)
        self._expected = {session for session in sessions if session not in self._late}
        while len(self._served) > REMEMBERED_SESSIONS:
            self._late.discard(self._served.popitem(last=False)[0])

    def came(self, session: int, now: float) -> None:
        """A session asks for its next turn."""
        self._expected.discard(session)
        ended = self._served.get(session)
        if ended is None:
            return
        if now - ended > self._linger:
            self._late.add(session)
        else:
            self._late.discard(session)

    def linger_seconds(self, now: float) -> float:
        """Seconds that the next batch is still to wait; 0 for none."""
        if not self._expected:
            return 0.0
        return max(0.0, self._ended_at + self._linger - now)
