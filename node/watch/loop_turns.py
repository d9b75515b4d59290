"""What the event loop is at: its turns and their steps, timed as they begin and end."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from functools import partial

from kakeya_fleet.node.watch.loop_stall import LoopStall, StallSettings
from kakeya_fleet.node.watch.thread_time import ThreadTime, ThreadTimes

_UNNAMED_TASK = re.compile(r"Task-\d+")


class LoopTurns:
    """Times each turn of a loop, from one look at its sockets to the next.

    A turn costs two looks at the clock and a step one, 1 us together. `seen` is where another
    thread leaves the line of code at which it found a turn that goes on. All else belongs to
    the loop's thread; `began` and `step` may be read in any.
    """

    def __init__(
        self, settings: StallSettings, times: ThreadTimes, clock: Callable[[], float]
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._settings = settings
        self._times = times
        self._clock = clock
        self._account = ThreadTime(0.0, None)
        self._account_at = -math.inf
        self._step_began = 0.0
        self._longest = 0.0
        self._longest_step: object = None
        self.began = math.inf
        """When the turn that goes on began; infinity between turns."""
        self.step: object = None
        """The handle that runs; None before the first of a turn."""
        self.seen = ""

    def begin(self) -> None:
        """A turn begins: the loop has looked, and runs what is ready."""
        now = self._clock()
        if now - self._account_at > self._settings.account_seconds:
            self._account, self._account_at = self._times.read(), now
        self._step_began = now
        self.began = now

    def next_step(self, handle: object) -> None:
        """The step that ran has ended, and `handle` runs."""
        now = self._clock()
        if now - self._step_began > self._longest:
            self._longest, self._longest_step = now - self._step_began, self.step
        self.step = handle
        self._step_began = now

    def end(self) -> LoopStall | None:
        """The turn has ended: the stall that it was, if it was one."""
        now = self._clock()
        seconds = now - self.began
        stall = self._stall(now, seconds) if seconds > self._settings.least_seconds else None
        self.began = math.inf
        # What a handle holds is not kept alive while the loop rests.
        self.step = self._longest_step = None
        self._longest = 0.0
        self.seen = ""
        return stall

    def _stall(self, now: float, seconds: float) -> LoopStall:
        self.next_step(None)
        before, after = self._account, self._times.read()
        self._account, self._account_at = after, now
        on_core = min(after.on_core - before.on_core, seconds)
        ready = None
        if after.ready is not None and before.ready is not None:
            ready = min(after.ready - before.ready, seconds - on_core)
        return LoopStall(
            seconds=seconds,
            step=step_name(self._longest_step),
            step_seconds=self._longest,
            on_core=on_core,
            ready=ready,
            place=self.seen,
        )


def step_name(handle: object) -> str:
    """What a handle of asyncio runs: a task's name, or what the code calls it.

    A task that nobody named is called as its coroutine.
    """
    if handle is None:
        return "the loop itself"
    # No other way leads from a handle to what it runs.
    callback = getattr(handle, "_callback", None)
    while isinstance(callback, partial):
        callback = callback.func
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(getattr(callback, "__qualname__", None) or type(callback).__name__)
    if not _UNNAMED_TASK.fullmatch(task.get_name()):
        return task.get_name()
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))
