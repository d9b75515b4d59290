"""What happens in a request's answers, as a queue that the client's pace empties."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from kakeya_fleet.node.http.answering import Happening, Put

# More than these wait in the sockets' buffers anyway.
MAX_WAITING = 64


class AnswerFeed:
    """Runs `work(put)` in a task of its own until the context is left.

    When nobody takes, `put` waits, and with it the generation. Leaving the
    context ends the work, and returns when it has closed its sessions.
    """

    def __init__(self, work: Callable[[Put], Awaitable[None]]) -> None:
        self._work = work
        self._queue: asyncio.Queue[Happening | None] = asyncio.Queue(MAX_WAITING)
        self._task: asyncio.Future[None] | None = None
        self._ended = False
        self._left = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="http-answer")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._left = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                # Whoever left early does not ask for it.
                self._task.exception()

    async def take(self, timeout: float) -> list[Happening] | None:
        """All that has happened since the last call, at least one thing; empty at the end.

        None when nothing happens for `timeout` seconds. Raises what the work raised,
        once all that happened before was taken.
        """
        happened: list[Happening] = []
        if not self._ended:
            try:
                async with asyncio.timeout(timeout):
                    self._note(await self._queue.get(), happened)
            except TimeoutError:
                return None
        while not self._queue.empty():
            self._note(self._queue.get_nowait(), happened)
        if not happened and self._task is not None:
            await self._task
        return happened

    def _note(self, happening: Happening | None, happened: list[Happening]) -> None:
        if happening is None:
            self._ended = True
        else:
            happened.append(happening)

    async def _run(self) -> None:
        try:
            await self._work(self._queue.put)
        finally:
            if not self._left:
                await self._queue.put(None)
