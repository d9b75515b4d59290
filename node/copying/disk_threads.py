"""Threads that read and write models' files, so that neither the event loop nor a load waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")

THREADS = 4
"""Two pieces that are hashed while two others are read or written: disks are no faster."""


class DiskThreads:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "models")

    def begin(self, step: Callable[[], Result]) -> asyncio.Future[Result]:
        """The result of `step`, which nobody need ever ask for."""
        running = asyncio.get_running_loop().run_in_executor(self._pool, step)
        running.add_done_callback(_look)
        return running

    async def run(self, step: Callable[[], Result]) -> Result:
        """The result of `step`, which has ended on return, also when the caller is cancelled."""
        running = self.begin(step)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((running,))
            raise

    def close(self) -> None:
        """Nothing begins any more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _look(running: asyncio.Future[Result]) -> None:
    if not running.cancelled():
        running.exception()
