"""A private event loop on its own thread, for the synchronous client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import TypeVar

from kakeya.errors import ClientClosed

T = TypeVar("T")

_GLANCE_SECONDS = 0.25
"""Longest wait of a caller's thread without looking for signals."""


class Portal:
    """Runs coroutines on a private event loop for callers of any other thread.

    Everything that needs the loop holds its portal. When nothing does any more, the loop
    runs `last` and ends, as `close` makes it do.
    """

    def __init__(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        self._thread = _LoopThread()
        self._close = weakref.finalize(self, _end, self._thread, last)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`. An interrupt of the waiting thread cancels it.

        Raises what `work` raises, and ClientClosed.
        """
        return self._thread.run(work)

    def iterate(self, open_stream: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Iterates on the loop; dropping the iterator drops the one on the loop."""
        return _LoopIterator(self, open_stream)

    def drop(self, held: list[AsyncIterator[T]]) -> None:
        """Empties `held` on the loop, so that what it held dies there."""
        self._thread.drop(held)

    def close(self) -> None:
        """Runs `last`, cancels the rest and ends the thread; a second close does nothing."""
        self._close()


class _LoopThread:
    """The loop and its thread. Knows no portal, so that a portal can be garbage."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_handle_exception)
        # Nothing enters once `_last` is set: it would wait for ever on a loop that ended.
        self._entrance = threading.Lock()
        self._last: Coroutine[object, object, None] | None = None
        # A daemon, so that a client that was never closed does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="kakeya-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._finish())
        self._loop.close()

    async def _finish(self) -> None:
        if self._last is not None:
            await self._last
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """See `Portal.run`."""
        with self._entrance:
            if self._last is not None:
                work.close()
                raise ClientClosed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return _awaited(future)
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def drop(self, held: list[AsyncIterator[T]]) -> None:
        """See `Portal.drop`."""
        # A loop that is closed, or closes right now, has dropped its streams itself.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(held.clear)

    def close(self, last: Coroutine[object, object, None]) -> None:
        """Runs `last`, cancels the rest and ends the thread. Called once."""
        with self._entrance:
            self._last = last
            self._loop.call_soon_threadsafe(self._loop.stop)
        # The collector may close a forgotten client from the loop's own thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _end(thread: _LoopThread, last: Callable[[], Coroutine[object, object, None]]) -> None:
    thread.close(last())


def _awaited(future: concurrent.futures.Future[T]) -> T:
    """The future's result; an interrupt is answered within `_GLANCE_SECONDS`.

    A signal that the kernel hands to another thread does not end a lock's wait.
    """
    while not future.done():
        try:
            return future.result(_GLANCE_SECONDS)
        except TimeoutError:
            continue
    return future.result()


class _LoopIterator(Iterator[T]):
    def __init__(self, portal: Portal, open_stream: Callable[[], AsyncIterator[T]]) -> None:
        self._portal = portal
        self._held: list[AsyncIterator[T]] = []
        portal.run(self._open(open_stream))

    async def _open(self, open_stream: Callable[[], AsyncIterator[T]]) -> None:
        self._held.append(open_stream())

    def __next__(self) -> T:
        # StopIteration cannot leave a coroutine, an empty list can.
        items = self._portal.run(self._advance())
        if not items:
            raise StopIteration
        return items[0]

    async def _advance(self) -> list[T]:
        async for item in self._held[0]:
            return [item]
        return []

    def __del__(self) -> None:
        self._portal.drop(self._held)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Passes over one fault of grpc: loops of one process wake for each other's events."""
    expected = "PollerCompletionQueue" in str(context.get("message"))
    if expected and isinstance(context.get("exception"), BlockingIOError):
        return
    loop.default_exception_handler(context)
