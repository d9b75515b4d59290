"""Looks at the event loop from beside it: a stall that goes on is told before it ends."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import structlog

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.loop_turns import LoopTurns, step_name

_log = structlog.get_logger(__name__)

TASK = "lookout of the event loop"
"""Its name among the tasks whose faults are counted."""


class LoopLookout:
    """A thread that looks at a loop's turns, from `open` to `close`."""

    def __init__(
        self,
        turns: LoopTurns,
        metrics: NodeMetrics,
        look_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is that of the turns; made in the loop's thread."""
        self._turns = turns
        self._metrics = metrics
        self._look_seconds = look_seconds
        self._clock = clock
        self._loop_thread = threading.get_ident()
        self._told = math.inf
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=TASK, daemon=True)

    def open(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, at once."""
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Tells of a turn that goes on for longer than `look_seconds`, once."""
        began = self._turns.began
        seconds = self._clock() - began
        if seconds <= self._look_seconds or began == self._told:
            return
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 its documented name
        place = _place(frame) if frame is not None else ""
        step = step_name(self._turns.step)
        if self._turns.began != began:
            # It ended meanwhile: what was seen is of another turn.
            return
        self._told = began
        self._turns.seen = place
        _log.warning("event_loop_is_stalled", step=step, seconds=round(seconds, 1), place=place)

    def _run(self) -> None:
        while not self._ended.wait(self._look_seconds):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 whatever it is, it looks again
                self._metrics.background_faults.labels(TASK, type(error).__name__).inc()


def _place(frame: FrameType) -> str:
    """The function that runs, its module and line."""
    module = frame.f_globals.get("__name__", "")
    return f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
