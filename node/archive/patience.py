"""Cancels calls that wait for too long, so that waiting itself costs no timer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

PERIOD_SECONDS = 0.1


class Patience:
    """Watches waits of any thread; one that lasts `seconds` is cancelled, a period late at most.

    A frozen peer answers nothing and closes nothing. The watch runs in a daemon
    thread that ends with `close`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waits: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="archive-patience", daemon=True)
        self._thread.start()

    def begin(self, key: Hashable, cancel: Callable[[], object]) -> None:
        """A wait begins; `cancel` is called in the watching thread when it lasts too long."""
        self._waits[key] = (time.monotonic(), cancel)

    def end(self, key: Hashable) -> bool:
        """The wait ends; whether it had not been cancelled."""
        return self._waits.pop(key, None) is not None

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(PERIOD_SECONDS):
            now = time.monotonic()
            for key, (began, cancel) in list(self._waits.items()):
                # The one who takes the entry decides whether the wait was in time.
                if now - began >= self.seconds and self._waits.pop(key, None) is not None:
                    cancel()
