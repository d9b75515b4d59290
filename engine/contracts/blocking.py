"""How the asynchronous parts of the engine run blocking steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Runner(Protocol):
    """Runs blocking steps one at a time in the thread of one model.

    Cancelling the awaiting task takes a waiting step back; a step that has begun is
    waited for, so that nobody touches its session before it ended.
    """

    def __call__(self, step: Callable[[], Result], /) -> Awaitable[Result]:
        """What `step()` returns or raises."""
        ...
