"""How far a training is: a bar with its rate and remaining time, or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class RateColumn(ProgressColumn):
    """Steps a second of the latest steps."""

    def render(self, task: Task) -> Text:
        """The rate; nothing before the first step."""
        return Text(rate_text(task.finished_speed or task.speed or 0.0))


class TrainingBar:
    """A bar of steps on a terminal; elsewhere a line every `line_every` steps, 0 for none.

    Nothing at all with `is_shown` False, as for the workers that do not lead.
    """

    def __init__(
        self,
        total: int,
        done: int,
        *,
        is_shown: bool = True,
        line_every: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._done = self._first = done
        self._is_shown = is_shown
        self._line_every = line_every
        self._clock = clock
        self._started = clock()
        self._bar: Progress | None = None
        if is_shown and sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                RateColumn(),
                TimeRemainingColumn(),
                TextColumn("left"),
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._bar.add_task("training", total=self._total, completed=self._done)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self) -> None:
        """A step is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])
        elif self._line_every and self._done % self._line_every == 0:
            self.say(self.line())

    def say(self, text: str) -> None:
        """A line above the bar."""
        if not self._is_shown:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def line(self) -> str:
        """`step 120 of 600, 8.31 steps/s, 58 s left`."""
        seconds = max(self._clock() - self._started, 1e-9)
        rate = (self._done - self._first) / seconds
        left = (self._total - self._done) / rate if rate else 0.0
        return f"step {self._done} of {self._total}, {rate_text(rate)}, {left:.0f} s left"


def rate_text(steps_per_second: float) -> str:
    """Steps a second, or seconds a step where that is the larger number; empty while unknown."""
    if steps_per_second <= 0:
        return ""
    if steps_per_second < 1:
        return f"{1 / steps_per_second:.3g} s/step"
    return f"{steps_per_second:.3g} steps/s"
