"""Ctrl-C where an exception is wanted: around what people type, and what only waits.

Elsewhere it cancels (`connection.run_interruptible`) or ends the process (`main`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType

AGAIN_SECONDS = 0.01
"""A finalizer, or a callback of a weak reference, has ended by then."""


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt within.

    The signal may find the thread in a finalizer, or in a callback of a weak reference, whose
    exceptions Python drops (`sys.unraisablehook`): it is sent again then.
    """
    hooked = sys.unraisablehook
    again = Timer(0.0, lambda: None)
    is_dropping = came_early = False

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal came_early
        came_early = True
        # What is raised where another one is dropped would be lost.
        if not is_dropping:
            signal.default_int_handler(number, frame)

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal again, is_dropping, came_early
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hooked(unraisable)
            return
        is_dropping, seconds = True, AGAIN_SECONDS
        came_early = True
        while came_early:
            came_early = False
            again.cancel()
            # From another thread: this one is still where exceptions are dropped, and on a busy
            # machine for longer than that takes.
            again = Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
            seconds *= 2.0
        # No call comes between, at which Python looks for signals.
        is_dropping = False

    handled = signal.signal(signal.SIGINT, interrupted)
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        again.cancel()
        sys.unraisablehook = hooked
        signal.signal(signal.SIGINT, handled)
