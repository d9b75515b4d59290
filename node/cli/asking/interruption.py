"""How Ctrl-C ends what a command asks of the fleet."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType
from typing import TypeVar

from kakeya_fleet.node.cli.shell.failure import ExitCode

# Leaving a stream and closing a session take a round trip each; a node that
# does not answer may not hold the person back.
GOODBYE_SECONDS = 0.15

Result = TypeVar("Result")


def run_interruptible(
    work: Coroutine[object, object, Result], farewell: Callable[[], None] | None = None
) -> Result:
    """Runs a coroutine; Ctrl-C cancels it, and ends the process if that takes too long.

    The time runs in a thread, because the loop may be blocked: by a download,
    or by a pipe that nobody reads. `farewell` is called before that end, and the
    exit code is then 0. Raises KeyboardInterrupt.
    """
    interruption = Interruption(farewell)

    async def supervised() -> Result:
        with woken_by_signals():
            task = asyncio.ensure_future(work)
            interruption.cancels(task.cancel)
            try:
                return await task
            except asyncio.CancelledError:
                if interruption.came:
                    raise KeyboardInterrupt from None
                raise

    before = signal.signal(signal.SIGINT, interruption.take)
    try:
        return asyncio.run(supervised())
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def woken_by_signals() -> Iterator[None]:
    """The running loop, which is the main thread's, wakes for each signal.

    Handlers run between two instructions: one that is due for a signal that another thread took,
    or that came just before the loop went to sleep, would wait until something else wakes it.
    """
    loop = asyncio.get_running_loop()
    reading, writing = socket.socketpair()
    with reading, writing:
        for end in (reading, writing):
            end.settimeout(0.0)
        loop.add_reader(reading, reading.recv, 64)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reading)


class Interruption:
    """What Ctrl-C does to a task.

    With a `farewell`, Ctrl-C is how people leave: the process ends with exit code 0.
    """

    def __init__(self, farewell: Callable[[], None] | None = None) -> None:
        self.came = False
        self._farewell = farewell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], object] | None = None

    def cancels(self, cancel: Callable[[], object]) -> None:
        """Names what cancels the task. Called from the task's loop."""
        self._loop = asyncio.get_running_loop()
        self._cancel = cancel

    def take(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self._loop is None or self._cancel is None:
            self._end()
            return
        self.came = True
        last_resort = Timer(GOODBYE_SECONDS, self._end)
        last_resort.daemon = True
        last_resort.start()
        self._loop.call_soon_threadsafe(self._cancel)

    def _end(self) -> None:
        if self._farewell is None:
            os._exit(int(ExitCode.INTERRUPTED))
        self._farewell()
        os._exit(int(ExitCode.OK))
