"""Asks of each call whether its caller may make it: `fleet.trust.permissions` says who may."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.fleet.trust.permissions import permitted
from kakeya_fleet.node.admission.caller import caller_of_key
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.rpc.recognition import Recognised, Recogniser, recognised
from kakeya_fleet.node.rpc.refusals import NotPermitted
from kakeya_fleet.node.trust.trust import Trust

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Context, Handler

calling_member: ContextVar[str] = ContextVar("calling_member", default="")
"""Id of the member that makes the present call; empty for programs of this machine."""


class Authorisation(grpc.aio.ServerInterceptor):
    """Comes behind the `ErrorInterceptor` that answers its refusals, and `Recognition`.

    Certificates were checked by the handshake, against the keepers of then; each call asks
    again, so that whoever was put out since is refused on connections that are open, too.
    """

    def __init__(self, trust: Trust, recogniser: Recogniser) -> None:
        self._trust = trust
        self._recogniser = recogniser
        self._ends: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        trust.on_change.append(self._end_calls)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, which begins once its caller may call it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        behaviour, make = behaviour_of(handler)

        async def awaiting(request: object, context: Context) -> object:
            async with self._admitted(method, context):
                return await behaviour(request, context)

        async def iterating(request: object, context: Context) -> AsyncIterator[object]:
            async with self._admitted(method, context):
                async for response in behaviour(request, context):
                    yield response

        return make(
            iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    @asynccontextmanager
    async def _admitted(self, method: str, context: Context) -> AsyncIterator[None]:
        """Lets the call run until its member is put out, or its key is revoked or over.

        Raises `NotPermitted`, and what `Recogniser.recognise` does.
        """
        found = recognised.get()
        if not isinstance(found, Recognised):
            raise found
        if not found.callers & permitted(method):
            raise NotPermitted(f"{method} is not for {found.told} to call")
        calling_member.set(found.member)
        if not found.names:
            yield
            return
        end = asyncio.timeout(self._seconds_left(found.key))
        with self._ending(found.names, end):
            try:
                async with end:
                    yield
            except TimeoutError:
                if end.expired():
                    # Says why, as the next call will be told.
                    self._recogniser.recognise(context)
                raise

    @contextmanager
    def _ending(self, names: tuple[str, ...], end: asyncio.Timeout) -> Iterator[None]:
        """Has the call end with the first of these."""
        for name in names:
            self._ends[name].add(end)
        try:
            yield
        finally:
            for name in names:
                self._ends[name].discard(end)
                if not self._ends[name]:
                    del self._ends[name]

    def _seconds_left(self, key: ApplicationKey | None) -> float | None:
        if key is None or not key.expires_at_unix:
            return None
        return max(0.0, key.expires_at_unix - self._trust.now_unix())

    def _end_calls(self) -> None:
        """Ends the calls of those who were put out while they ran."""
        now = asyncio.get_running_loop().time()
        ledger = self._trust.ledger
        over = {*ledger.revoked, *map(caller_of_key, ledger.revoked_keys)}
        for name in self._ends.keys() & over:
            for end in self._ends[name]:
                end.reschedule(now)


def require_sender(sender_id: str) -> None:
    """Raises `BadCertificate` when the calling member says that it is another node."""
    member = calling_member.get()
    if member and sender_id and sender_id != member:
        raise BadCertificate(
            f"the caller's certificate is of node {member[:12]}, not {sender_id[:12]}",
            "join again with a code of `fleet invite`",
        )
