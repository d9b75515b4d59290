"""Control streams over gRPC: StreamTensors as its caller and as its servicer has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc.aio

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.ends.control_stream import ControlEnded, Packed
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.messages import Message
from kakeya_fleet.node.links.transport.wire import message_from_wire, message_to_wire

if TYPE_CHECKING:
    from typing import TypeAlias

    StreamCall: TypeAlias = grpc.aio.StreamStreamCall[
        wire.StreamTensorsRequest, wire.StreamTensorsResponse
    ]
    StreamContext: TypeAlias = grpc.aio.ServicerContext[
        wire.StreamTensorsRequest, wire.StreamTensorsResponse
    ]


class CallerStream:
    """The caller's end of a StreamTensors call."""

    def __init__(self, call: StreamCall) -> None:
        """Of a call whose opening was written."""
        self._call = call

    @property
    def base(self) -> RoadKind:
        """GRPC."""
        return RoadKind.GRPC

    def pack(self, message: Message) -> Packed:
        """The message as a request."""
        request = wire.StreamTensorsRequest()
        message_to_wire(message, request)
        return request

    async def write(self, packed: Packed) -> None:
        """Waits until gRPC's flow control took the message. Raises `ControlEnded`."""
        if not isinstance(packed, wire.StreamTensorsRequest):
            raise TypeError("a caller writes requests")
        try:
            await self._call.write(packed)
        except grpc.aio.AioRpcError as error:
            raise ControlEnded(_text(error)) from error
        except (asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise ControlEnded("the call is over") from error
        except asyncio.CancelledError:
            _refuse_own()
            raise ControlEnded("the channel was closed") from None

    async def read(self) -> Message:
        """The next response. Raises `ControlEnded`, and what `message_from_wire` does."""
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise ControlEnded(_text(error)) from error
        except asyncio.CancelledError:
            _refuse_own()
            raise ControlEnded("the channel was closed") from None
        if not isinstance(response, wire.StreamTensorsResponse):
            raise ControlEnded("")
        return message_from_wire(response)

    async def close(self) -> None:
        """Says that nothing follows; the servicer then ends the call."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.BaseError):
            return
        except asyncio.CancelledError:
            _refuse_own()


class ServicerStream:
    """The servicer's end; the call ends when its handler returns."""

    def __init__(
        self, requests: AsyncIterator[wire.StreamTensorsRequest], context: StreamContext
    ) -> None:
        self._requests = requests
        self._context = context

    @property
    def base(self) -> RoadKind:
        """GRPC."""
        return RoadKind.GRPC

    def pack(self, message: Message) -> Packed:
        """The message as a response."""
        response = wire.StreamTensorsResponse()
        message_to_wire(message, response)
        return response

    async def write(self, packed: Packed) -> None:
        """Waits until gRPC's flow control took the message. Raises `ControlEnded`."""
        if not isinstance(packed, wire.StreamTensorsResponse):
            raise TypeError("a servicer writes responses")
        try:
            await self._context.write(packed)
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise ControlEnded("the call is over") from error
        except asyncio.CancelledError:
            _refuse_own()
            raise ControlEnded("the caller left") from None

    async def read(self) -> Message:
        """The next request. Raises `ControlEnded`, and what `message_from_wire` does."""
        try:
            request = await anext(self._requests, None)
        except grpc.aio.BaseError as error:
            raise ControlEnded("the call is over") from error
        except asyncio.CancelledError:
            _refuse_own()
            raise ControlEnded("the caller left") from None
        if request is None:
            raise ControlEnded("")
        return message_from_wire(request)

    async def close(self) -> None:
        """Nothing: the handler returns."""


def _text(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"


def _refuse_own() -> None:
    """Raises when the running task itself was cancelled; gRPC does so with calls as well."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError
