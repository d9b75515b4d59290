"""A stall of the event loop: how long, in whose step, and whose fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class StallSettings:
    """What a stall is, and how often people hear of stalls."""

    least_seconds: float = 0.1
    """The loop looks at nothing new for longer than this.

    A fifth of what a peer's probe may take (half a gossip period of 1 s): with two stalls on
    each way of a round trip a node is still not suspect.
    """

    account_seconds: float = 0.025
    """How old the account of the thread may be when a turn of the loop begins.

    A quarter of the shortest stall: that much of it is told wrongly at most, as on a core or
    without one. It is read 1 / this = 40 times a second at most, which takes 0.01 % of a core.
    """

    quiet_seconds: float = 60.0
    """One event in that time of stalls in the same step; one of all that the machine caused."""

    look_seconds: float = 1.0
    """A stall that goes on for so long is in the log, with its place, before it ends.

    1 / this wake-ups a second, of some 0.1 ms.
    """


class StallCause(StrEnum):
    """Why the loop did not come back."""

    COMPUTING = "computing"
    """Its thread had a core, and something to do on it."""
    WAITING = "waiting"
    """Its thread was not ready: for a file, a lock or the interpreter that another thread held,
    or since the whole process was stopped."""
    MACHINE = "machine"
    """Its thread was ready and had no core: without that it would have been no stall."""
    UNKNOWN = "unknown"
    """Its thread had no core, and this system does not tell why."""


@dataclass(frozen=True, slots=True)
class LoopStall:
    """One turn of the loop that took too long.

    `seconds` is all of the turn, `step_seconds` its longest step, which was `step`: a task's
    name, or a function's. `on_core` and `ready` are the loop's thread's seconds with a core,
    and without one though it could have used it; `ready` is None where that is not told.
    `place` is the line of code where a look found it, empty when nobody looked.
    """

    seconds: float
    step: str
    step_seconds: float
    on_core: float
    ready: float | None
    place: str = ""

    def cause(self, least_seconds: float) -> StallCause:
        """Why it took longer than `least_seconds`."""
        if self.ready is not None and self.seconds - self.ready <= least_seconds:
            return StallCause.MACHINE
        waiting = self.seconds - self.on_core - (self.ready or 0.0)
        if self.on_core >= waiting:
            return StallCause.COMPUTING
        return StallCause.UNKNOWN if self.ready is None else StallCause.WAITING
