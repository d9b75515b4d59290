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

AGAIN_SECONDS = 0.01
"""A finalizer, or a callback of a weak reference, has ended by then."""


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt within.

    The signal may find the thread in a finalizer, or in a callback of a weak reference, whose
    exceptions Python drops (`sys.unraisablehook`): it is sent again then.
    """
    handled = signal.signal(signal.SIGINT, signal.default_int_handler)
    hooked = sys.unraisablehook
    again = Timer(0.0, lambda: None)

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hooked(unraisable)
            return
        # From another thread: this one is still where exceptions are dropped.
        nonlocal again
        again.cancel()
        again = Timer(AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        again.cancel()
        sys.unraisablehook = hooked
        signal.signal(signal.SIGINT, handled)
