"""A thread with a deep stack for one call: libraries recurse as deep as their input says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from kakeya_fleet.engine.contracts.blocking import handed_on

Result = TypeVar("Result")

STACK_BYTES = 64 << 20
"""Addresses, not memory: what is not touched is not taken."""

_starting = threading.Lock()


def in_deep_thread(function: Callable[[], Result]) -> asyncio.Future[Result]:
    """What `function` returns or raises, run in a thread of its own; for the running loop.

    The thread cannot be stopped: it runs to its end, also when nobody awaits it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failure = None, None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 handed to the task that awaits it
            failure = handed_on(error)
        # A loop that is closed has nobody left who awaits it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    with _starting:
        before = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=work, name="grammar", daemon=True).start()
        finally:
            threading.stack_size(before)
    return future
