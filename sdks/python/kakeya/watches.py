"""Server streams of what happens, until the application leaves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from grpc import aio

from kakeya.connection import Connection
from kakeya.streams import AsyncStream, MessageStream

EventT = TypeVar("EventT")
RequestT = TypeVar("RequestT", bound=Message)
MessageT = TypeVar("MessageT", bound=Message)
_RequestT = TypeVar("_RequestT", bound=Message, contravariant=True)


class _Method(Protocol[_RequestT, MessageT]):
    """A call of a stub that answers with a stream."""

    def __call__(
        self, request: _RequestT, *, timeout: float, metadata: tuple[tuple[str, str], ...]
    ) -> aio.UnaryStreamCall[Any, MessageT]: ...


def _whole(_message: Message) -> bool:
    """The default of `has_more`."""
    return False


class AsyncWatch(AsyncStream[Any, EventT]):
    """What happens: the state as it is first, then what changes.

    Iterated once; leaving the iteration ends the watch on the node. Ends with
    DeadlineExceeded after `Timeouts.watch`, with WatcherTooSlow when the
    application falls behind; watch again after both.
    """

    def __init__(
        self,
        connection: Connection,
        method: Callable[[], _Method[RequestT, MessageT]],
        request: RequestT,
        take: Callable[[MessageT], EventT | None],
        has_more: Callable[[MessageT], bool] = _whole,
    ) -> None:
        """`has_more` tells of a message whether a further part of the state follows at once."""
        super().__init__()
        self._connection = connection
        self._take_message = take
        self._has_more = has_more
        timeout = connection.timeouts.watch

        async def open_call() -> aio.UnaryStreamCall[Any, MessageT]:
            return method()(request, timeout=timeout, metadata=connection.metadata)

        self._open_call = open_call

    def _open(self) -> MessageStream[Any, Any]:
        return MessageStream(
            self._connection,
            self._open_call,
            first_timeout=self._connection.timeouts.unary,
            idle_timeout=self._connection.timeouts.watch,
            has_more=self._has_more,
        )

    def _take(self, message: Any) -> EventT | None:
        return self._take_message(message)
