"""One thread that runs a model's steps, first come first served."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar, cast

Result = TypeVar("Result")


class WorkerClosed(RuntimeError):
    """The worker was closed before the step ran."""


class _Step:
    """A step on its way through the worker's thread."""

    __slots__ = ("_function", "_loop", "_taken", "finished")

    def __init__(self, function: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
        self._taken = threading.Lock()
        self.finished: asyncio.Future[object] = loop.create_future()

    def take(self) -> bool:
        """Claims the step, to run or to withdraw it; False when another did before."""
        return self._taken.acquire(blocking=False)

    def run(self) -> None:
        """Runs in the worker's thread, unless it was withdrawn."""
        if not self.take():
            return
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 handed to the task that awaits the step
            self._post(self._fail, error)
        else:
            self._post(self._succeed, result)

    def refuse(self) -> None:
        """Fails a step that the closed worker will not run."""
        if self.take():
            self._post(self._fail, WorkerClosed("the model's worker was closed"))

    def _post(self, deliver: Callable[..., None], value: object) -> None:
        # A loop that is already closed has nobody left who awaits the step.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliver, value)

    def _succeed(self, result: object) -> None:
        if not self.finished.done():
            self.finished.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)


class ModelWorker:
    """Runs functions one at a time in one thread, in the order of their calls.

    Sessions that submit one step each take turns. Nothing but this thread
    touches the verifier and the caches that it allocated.
    """

    def __init__(self, name: str) -> None:
        self._steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, function: Callable[[], Result]) -> Result:
        """The result of `function`, run in the worker's thread.

        A cancelled caller takes a waiting step back at once; a step that has
        begun is waited for, so that nobody touches its session before it ended.
        Raises what the function raises, and `WorkerClosed`.
        """
        if self._closed:
            raise WorkerClosed("the model's worker was closed")
        step = _Step(function, asyncio.get_running_loop())
        self._steps.put(step)
        try:
            return cast(Result, await asyncio.shield(step.finished))
        except asyncio.CancelledError:
            if not step.take():
                await _settled(step.finished)
            raise

    async def close(self) -> None:
        """Lets the running step end, refuses the waiting ones, joins the thread."""
        if not self._closed:
            self._closed = True
            self._steps.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (step := self._steps.get()) is not None:
            if self._closed:
                step.refuse()
            else:
                step.run()


async def _settled(future: asyncio.Future[object]) -> None:
    """Waits until the future is done, however often the waiting task is cancelled."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()
