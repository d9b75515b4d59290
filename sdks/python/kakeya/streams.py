"""Server streams that end on the node when the application leaves them."""

from __future__ import annotations

import asyncio
import weakref
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, cast

from google.protobuf.message import Message
from grpc import aio

from kakeya.connection import Connection
from kakeya.errors import DeadlineExceeded, KakeyaError, StreamConsumed

RequestT = TypeVar("RequestT")
MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)
ItemT = TypeVar("ItemT")


class MessageStream(Generic[RequestT, MessageT]):
    """One call that answers with a stream of messages.

    Cancels the call when it is left, closed, garbage, or idle for too long.
    Belongs to the event loop that reads it; only `__del__` may run elsewhere.
    """

    def __init__(
        self,
        connection: Connection,
        open_call: Callable[[], Awaitable[aio.UnaryStreamCall[RequestT, MessageT]]],
        *,
        first_timeout: float,
        idle_timeout: float,
        has_more: Callable[[MessageT], bool] | None = None,
    ) -> None:
        """`has_more` tells of a message that what comes first goes on, with its timeout."""
        self._connection = connection
        self._open_call = open_call
        self._timeout = first_timeout
        self._idle_timeout = idle_timeout
        self._has_more = has_more
        self._call: aio.UnaryStreamCall[RequestT, MessageT] | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._completed = False

    @property
    def completed(self) -> bool:
        """Whether the node ended the stream, without an error."""
        return self._completed

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    async def read(self) -> MessageT | None:
        """The next message; None after the last one, or when the stream was left.

        Raises KakeyaError; DeadlineExceeded when the node is silent for too long.
        """
        if self._ended:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                if self._call is None:
                    await self._connection.connect()
                    self._call = await self._open_call()
                message = await self._call.read()
        except TimeoutError:
            self.leave()
            address = self._connection.address
            raise DeadlineExceeded(f"{address} was silent for {self._timeout:g} s") from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._ended and not (task is not None and task.cancelling()):
                return None
            self.leave()
            self._connection.fail(error)
        except (aio.AioRpcError, aio.UsageError) as error:
            self._ended = True
            self._connection.fail(error)
        if message is aio.EOF:
            self._ended = self._completed = True
            return None
        answer = cast(MessageT, message)
        if self._has_more is None or not self._has_more(answer):
            self._timeout = self._idle_timeout
        return answer

    def leave(self) -> None:
        """Cancels the call, also on the node; a second time does nothing."""
        if not self._ended:
            self._ended = True
            if self._call is not None:
                self._call.cancel()

    def __del__(self) -> None:
        if self._ended or self._call is None or self._loop.is_closed():
            return
        # The collector runs on any thread; a call is cancelled on its own loop.
        self._loop.call_soon_threadsafe(self._call.cancel)


class MessageSource(Protocol[MessageT_co]):
    """What an iteration reads: a `MessageStream`, or several one after the other."""

    @property
    def completed(self) -> bool:
        """Whether the stream came to its end, without an error."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    async def read(self) -> MessageT_co | None:
        """The next message; None after the last one, or when the stream was left."""
        ...

    def leave(self) -> None:
        """Ends the call, also on the node; a second time does nothing."""
        ...


class AsyncStream(AsyncIterable[ItemT], Generic[MessageT, ItemT]):
    """What an application iterates, once. Leaving it ends the call on the node.

    `break`, an exception, `aclose`, the end of its context manager and garbage
    collection all leave it; nothing is sent before the iteration begins.
    """

    def __init__(self) -> None:
        self._started = False
        self._stream: weakref.ref[MessageSource[MessageT]] | None = None

    @abstractmethod
    def _open(self) -> MessageSource[MessageT]:
        """The stream to iterate; called when the iteration begins."""

    @abstractmethod
    def _take(self, message: MessageT) -> ItemT | None:
        """The item of a message; None when it has none."""

    def _finish(self) -> None:
        """Called after the last message; may raise."""

    def __aiter__(self) -> AsyncIterator[ItemT]:
        if self._started:
            raise StreamConsumed("a stream is iterated once; start another one")
        stream = self._open()
        self._started = True
        # Only the iterator holds the stream, so that dropping it leaves the call.
        self._stream = weakref.ref(stream)
        return _Items(stream, self._take, self._finish)

    async def aclose(self) -> None:
        """Leaves the stream; a second time does nothing."""
        self._started = True
        stream = self._stream() if self._stream is not None else None
        if stream is not None:
            stream.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Items(AsyncIterator[ItemT], Generic[MessageT, ItemT]):
    """The iteration of an `AsyncStream`: the one holder of its call."""

    def __init__(
        self,
        stream: MessageSource[MessageT],
        take: Callable[[MessageT], ItemT | None],
        finish: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._take = take
        self._finish = finish

    async def __anext__(self) -> ItemT:
        if not self._stream.ended:
            while (message := await self._stream.read()) is not None:
                item = self._taken(message)
                if item is not None:
                    return item
            if self._stream.completed:
                self._finish()
        raise StopAsyncIteration

    def _taken(self, message: MessageT) -> ItemT | None:
        try:
            return self._take(message)
        except KakeyaError:
            self._stream.leave()
            raise
