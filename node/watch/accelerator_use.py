"""How busy the accelerator is: read beside the event loop, since its driver may take its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STALE_SECONDS = 5.0
"""A reading that is older tells nothing: the driver hangs, or its thread gets no core."""

Read = Callable[[], float | None]


class AcceleratorUse:
    """Its latest reading, 0 to 1, from a thread of its own that reads when it is asked.

    `look` and `close` belong to one thread and never wait for the driver. The thread is a daemon:
    one that hangs in the driver does not keep the process.
    """

    def __init__(self, read: Read | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`read` is None where there is no accelerator to ask for: no thread is made then."""
        self._read = read
        self._clock = clock
        self._latest: tuple[float, float | None] = (float("-inf"), None)
        self._asked = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def look(self) -> float | None:
        """What was read last; has it read anew. None where nothing is told, or not of late."""
        if self._read is None:
            return None
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._read,), name="use of the accelerator", daemon=True
            )
            self._thread.start()
        self._asked.set()
        at, share = self._latest
        return share if self._clock() - at < STALE_SECONDS else None

    def close(self) -> None:
        """Has the thread end once it is back."""
        self._ended = True
        self._asked.set()

    def _run(self, read: Read) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._ended:
                return
            self._latest = self._clock(), read()
