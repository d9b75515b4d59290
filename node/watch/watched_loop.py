"""An event loop whose turns are timed, step by step."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import deque
from collections.abc import Callable

from kakeya_fleet.node.watch.loop_stall import LoopStall, StallSettings
from kakeya_fleet.node.watch.loop_turns import LoopTurns
from kakeya_fleet.node.watch.thread_time import OwnThreadTimes

MOST_UNTOLD = 64

Untold = LoopStall | OSError
"""A stall, or why the thread's account cannot be read any more."""


class WatchedLoop(asyncio.SelectorEventLoop):
    """Made in the thread that runs it. What it notes is told once `tell` says whom.

    Until then the latest 64 are kept, so that those of a node's start are told too.
    """

    def __init__(self, settings: StallSettings | None = None) -> None:
        self.settings = settings or StallSettings()
        self._untold: deque[Untold] = deque(maxlen=MOST_UNTOLD)
        self._listener: Callable[[Untold], None] | None = None
        self._times = OwnThreadTimes(self._note)
        self.turns = LoopTurns(self.settings, self._times, time.monotonic)
        super().__init__(_Selector(self.turns, self._note))
        # Where the loop takes each step from, in all of CPython's versions.
        self._ready = _Steps(self.turns)

    def tell(self, listener: Callable[[Untold], None]) -> None:
        """From now on `listener` hears of what is noted, in steps of this loop."""
        self._listener = listener
        self.call_soon(self._tell)

    def close(self) -> None:
        """Also gives back the account of its thread."""
        super().close()
        self._times.close()

    def _note(self, noted: Untold) -> None:
        self._untold.append(noted)
        if self._listener is not None:
            self.call_soon(self._tell)

    def _tell(self) -> None:
        while self._untold and self._listener is not None:
            self._listener(self._untold.popleft())


def watched_loop() -> WatchedLoop | None:
    """The running loop, if it is a watched one; programs that run a node may bring their own."""
    loop = asyncio.get_running_loop()
    return loop if isinstance(loop, WatchedLoop) else None


class _Selector(selectors.DefaultSelector):
    """A loop comes here between two turns, and nowhere else."""

    def __init__(self, turns: LoopTurns, on_stall: Callable[[LoopStall], None]) -> None:
        super().__init__()
        self._turns = turns
        self._on_stall = on_stall

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after `timeout` seconds at the latest, or at once after a stall."""
        stall = self._turns.end()
        if stall is not None:
            self._on_stall(stall)
            timeout = 0.0
        ready = super().select(timeout)
        self._turns.begin()
        return ready


class _Steps(deque[asyncio.Handle]):
    """The steps that are to run, in their order; one that is taken runs at once."""

    def __init__(self, turns: LoopTurns) -> None:
        super().__init__()
        self._turns = turns

    def popleft(self) -> asyncio.Handle:
        """The next step."""
        handle = super().popleft()
        self._turns.next_step(handle)
        return handle
