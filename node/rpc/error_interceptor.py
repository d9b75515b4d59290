"""Answers the errors of every servicer in one place, from `node.rpc.error_status`.

A domain error becomes its status and ErrorInfo; bytes that do not parse become
INVALID_ARGUMENT; anything else becomes INTERNAL with one line in the log and
none of its text on the wire. Every error is counted by its reason.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    DomainError,
    abort,
    abort_internal,
)
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.rpc.lenient_parsing import check_parsed, lenient
from kakeya_fleet.node.rpc.message_limits import check_answer
from kakeya_fleet.node.rpc.refusals import MalformedMessage

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Behaviour, Context, Handler

_log = structlog.get_logger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Belongs to every server of a node: `grpc.aio.server(interceptors=[...])`."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, its errors answered."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        task = asyncio.current_task()
        if task is not None:
            # So that a stall of the event loop is told by the call that caused it.
            task.set_name(handler_call_details.method)
        return self._answering(handler, handler_call_details.method)

    def _answering(self, handler: Handler, method: str) -> Handler:
        behaviour, make = behaviour_of(handler)
        deserializer = handler.request_deserializer
        if deserializer is not None and not handler.request_streaming:
            deserializer = lenient(deserializer)
        wrap = self._iterating if inspect.isasyncgenfunction(behaviour) else self._awaiting
        return make(
            wrap(behaviour, method),
            request_deserializer=deserializer,
            response_serializer=handler.response_serializer,
        )

    def _awaiting(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def answer(request: object, context: Context) -> object:
            try:
                check_parsed(request)
                response = await behaviour(request, context)
                _check_answer(response)
                return response
            except Exception as error:  # noqa: BLE001 every error is answered and counted
                await self._answer(error, method, context)

        return answer

    def _iterating(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def answer(request: object, context: Context) -> AsyncIterator[object]:
            try:
                check_parsed(request)
                async for response in behaviour(request, context):
                    _check_answer(response)
                    yield response
            except Exception as error:  # noqa: BLE001 every error is answered and counted
                await self._answer(error, method, context)

        return answer

    async def _answer(self, error: Exception, method: str, context: Context) -> NoReturn:
        try:
            await self._end(error, method, context)
        except grpc.aio.AbortError as ended:
            # gRPC keeps the error with the call, and the error's frames have the call: a cycle of
            # some 150 objects and its request, which the collector would find late. Nobody reads
            # the frames once the call's task has handled it: before the event loop's next turn.
            asyncio.get_running_loop().call_soon(_forget_frames, ended)
            raise

    async def _end(self, error: Exception, method: str, context: Context) -> NoReturn:
        # A servicer that aborted by itself has been answered; a call that has
        # ended has nobody left to answer.
        if isinstance(error, grpc.aio.AbortError):
            raise error
        # gRPC tells in the loop's next turn that a caller has left, and loses half a kilobyte
        # for each who is answered after he has (grpc/grpc#43360).
        await asyncio.sleep(0)
        if context.done():
            raise error
        if isinstance(error, DecodeError):
            error = MalformedMessage(f"the bytes are no request of {method}")
        if isinstance(error, DOMAIN_ERRORS):
            await self._answer_domain(error, context)
        self._metrics.rpc_errors.labels(reason=INTERNAL_REASON).inc()
        _log.error("rpc_failed", method=method, exc_info=error)
        await abort_internal(context)

    async def _answer_domain(self, error: DomainError, context: Context) -> NoReturn:
        self._metrics.rpc_errors.labels(reason=error.reason).inc()
        await abort(context, error)


def _forget_frames(error: BaseException) -> None:
    error.__traceback__ = error.__context__ = error.__cause__ = None


def _check_answer(response: object) -> None:
    """Raises `AnswerTooLarge`; a coroutine that writes itself answers with nothing."""
    if isinstance(response, Message):
        check_answer(response)
