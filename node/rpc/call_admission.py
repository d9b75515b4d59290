"""Every call of gRPC holds a place, from its headers on; membership and health have their own.

gRPC's own bound refuses whoever comes next, gossip and health too, without a reason, and counts
calls whose request never comes for ever. Here a call is admitted by its caller before anything
of its request is read, and what does not come in time, or is missing when places are, ends it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kakeya_fleet.node.admission.allowance import Allowance
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.holding import Holding, held_by
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.admission.share import Cause
from kakeya_fleet.node.rpc.calling import calling_of
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.rpc.refusals import MalformedMessage, TooManyCalls

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Context, Handler

CONTROL_SERVICES = ("kakeya.v1.CapabilityService", "grpc.health.v1.Health")
"""Their calls with one answer keep a node alive in its fleet, and end within moments."""
CLOSING_METHODS = (
    "/kakeya.v1.RuntimeService/CloseSession",
    "/kakeya.v1.TensorService/CloseLink",
    "/kakeya.v1.ArchiveService/CloseArchive",
)
"""They give back what others wait for, at once: refused, it would be held until it expires."""


@dataclass(frozen=True, slots=True)
class _Sized:
    """A request, and how many bytes it came in."""

    request: object
    nbytes: int


@dataclass(slots=True, eq=False)
class _Awaited:
    """A call whose request has not come; `timeout` ends it. `memory` holds what came."""

    caller: Caller
    since: float
    timeout: asyncio.Timeout
    memory: Holding
    has_place: bool = True

    @property
    def silent_ms(self) -> float:
        return 1000.0 * (time.monotonic() - self.since)


class _Places:
    """The places of calls of one kind. Belongs to the event loop's thread."""

    def __init__(self, allowance: Allowance, memory: Allowance, request_seconds: float) -> None:
        self._allowance = allowance
        self._memory = memory
        self._request_seconds = request_seconds
        self._awaited: set[_Awaited] = set()

    @contextmanager
    def holding(self, caller: Caller) -> Iterator[_Awaited]:
        """A place for a call. Raises `TooManyCalls` when none can be had or taken back."""
        if self._allowance.would_refuse(caller) and self._awaited:
            self._take_back()
        self._allowance.take(caller)
        with held_by(self._memory, caller) as memory:
            timeout = asyncio.timeout(self._request_seconds)
            call = _Awaited(caller, time.monotonic(), timeout, memory)
            try:
                yield call
            finally:
                if call.has_place:
                    self._allowance.give_back(caller)

    async def request(self, call: _Awaited, requests: AsyncIterator[object]) -> object:
        """The call's one request, whose bytes it holds from now on.

        Raises `MalformedMessage` when none comes in time, `TooManyCalls` when the place went to
        another call meanwhile, or all callers' requests have too many bytes.
        """
        self._awaited.add(call)
        receiving = aiter(requests)
        try:
            async with call.timeout:
                sized = await anext(receiving, None)
        except TimeoutError:
            sized = None
        finally:
            self._awaited.discard(call)
        if isinstance(receiving, AsyncGenerator):
            # gRPC's generator has the call that has it: unless it ends, both are a cycle, with
            # the request, that the collector would find late.
            await receiving.aclose()
        if sized is None and not call.has_place:
            raise self._allowance.refused(call.caller, Cause.FULL)
        if sized is None:
            raise MalformedMessage("the request of this call did not come in time")
        assert isinstance(sized, _Sized)
        call.memory.take(sized.nbytes)
        return sized.request

    def _take_back(self) -> None:
        """Ends the call of whoever holds most that has waited longest for its request."""
        # Of one that has expired the place is on its way back already.
        for call in to_reclaim([each for each in self._awaited if not each.timeout.expired()], 1):
            self._awaited.discard(call)
            call.has_place = False
            self._allowance.take_back(call.caller)
            call.timeout.reschedule(asyncio.get_running_loop().time())


class CallAdmission(grpc.aio.ServerInterceptor):
    """Comes behind the `ErrorInterceptor` that answers its refusals."""

    def __init__(self, allowances: Allowances) -> None:
        limits = allowances.limits.calls

        def places(name: str, memory: str, request_seconds: float) -> _Places:
            of_calls, of_bytes = (
                allowances.share(f"calls.{each}", TooManyCalls) for each in (name, memory)
            )
            return _Places(of_calls, of_bytes, request_seconds)

        self._calls = places("at_once", "requests_bytes", limits.request_seconds)
        self._control = places("control", "control_bytes", limits.control_request_seconds)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, which begins once the call has a place and its request."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        service = method.strip("/").partition("/")[0]
        is_control = service in CONTROL_SERVICES and not handler.response_streaming
        is_control = is_control or method in CLOSING_METHODS
        return _admitted(handler, self._control if is_control else self._calls)


def _admitted(handler: Handler, places: _Places) -> Handler:
    """The handler as one that reads its request itself: a caller sees no difference."""
    behaviour, _ = behaviour_of(handler)
    has_one_request = not handler.request_streaming

    async def request_of(call: _Awaited, requests: AsyncIterator[object]) -> object:
        return await places.request(call, requests) if has_one_request else requests

    async def awaiting(requests: AsyncIterator[object], context: Context) -> object:
        with places.holding(calling_of(context).caller) as call:
            return await behaviour(await request_of(call, requests), context)

    async def iterating(requests: AsyncIterator[object], context: Context) -> AsyncIterator[object]:
        with places.holding(calling_of(context).caller) as call:
            async for response in behaviour(await request_of(call, requests), context):
                yield response

    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.stream_unary_rpc_method_handler
    )
    return make(
        iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
        request_deserializer=_sized(handler) if has_one_request else handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _sized(handler: Handler) -> Callable[[bytes], _Sized]:
    parse = handler.request_deserializer

    def sized(data: bytes) -> _Sized:
        return _Sized(data if parse is None else parse(data), len(data))

    return sized
