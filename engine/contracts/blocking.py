"""How the asynchronous parts of the engine run blocking steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kakeya_fleet.engine.errors import EngineError

Result = TypeVar("Result")


class Runner(Protocol):
    """Runs blocking steps one at a time in the thread of one model.

    Cancelling the awaiting task takes a waiting step back; a step that has begun is
    waited for, so that nobody touches its session before it ended.
    """

    def __call__(self, step: Callable[[], Result], /) -> Awaitable[Result]:
        """What `step()` returns or raises."""
        ...


def handed_on(error: BaseException) -> Exception:
    """`error` as the task that awaits a step can be given it.

    A library's `SystemExit` would end the event loop of whoever awaits, a `CancelledError` look
    like the awaiting task's own, and a future takes no `StopIteration`: each would befall others
    than the step that raised it.

    An error of the engine's says what happened. It leaves its traceback behind, whose frames hold
    it and the session: such a circle stays until the collector of cycles comes.
    """
    if isinstance(error, EngineError):
        return error.with_traceback(None)
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    crash = RuntimeError(f"it raised {type(error).__name__}: {error}")
    crash.__cause__ = error
    return crash


async def settled(future: asyncio.Future[Result]) -> None:
    """Waits until the future is done, however often the waiting task is cancelled.

    Raises a cancellation then, and nothing of the future's.
    """
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            # Not kept: its traceback has this frame, a circle around all that the future holds.
            is_cancelled = True
    if not future.cancelled():
        # Looked at: nobody else is told of it.
        future.exception()
    if is_cancelled:
        raise asyncio.CancelledError
