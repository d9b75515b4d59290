"""Asks of each call whether its caller may make it: `fleet.trust.permissions` says who may."""

from __future__ import annotations

import asyncio
import hmac
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kakeya_fleet.fleet.trust.permissions import Caller, permitted
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.rpc.refusals import NotPermitted
from kakeya_fleet.node.trust.tls import member_calling
from kakeya_fleet.node.trust.trust import Trust

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Context, Handler

calling_member: ContextVar[str] = ContextVar("calling_member", default="")
"""Id of the member that makes the present call; empty for programs of this machine."""


class Authorisation(grpc.aio.ServerInterceptor):
    """Comes behind the `ErrorInterceptor` that answers its refusals.

    Certificates were checked by the handshake, against the keepers of then; each call asks
    again, so that whoever was put out since is refused on connections that are open, too.
    """

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._owner = f"Bearer {trust.files.owner_key()}".encode("ascii")
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
        shown = dict(handler_call_details.invocation_metadata or ()).get("authorization", b"")
        key = shown if isinstance(shown, bytes) else shown.encode("utf-8")
        behaviour, make = behaviour_of(handler)

        async def awaiting(request: object, context: Context) -> object:
            async with self._admitted(method, key, context):
                return await behaviour(request, context)

        async def iterating(request: object, context: Context) -> AsyncIterator[object]:
            async with self._admitted(method, key, context):
                async for response in behaviour(request, context):
                    yield response

        return make(
            iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    @asynccontextmanager
    async def _admitted(self, method: str, key: bytes, context: Context) -> AsyncIterator[None]:
        """Lets the call run until its member is put out; see `_check` for errors."""
        member = self._check(method, key, context)
        if not member:
            yield
            return
        end = asyncio.timeout(None)
        self._ends[member].add(end)
        try:
            async with end:
                yield
        except TimeoutError:
            if end.expired():
                # Says why, as the next call will be told.
                self._check(method, key, context)
            raise
        finally:
            self._ends[member].discard(end)
            if not self._ends[member]:
                del self._ends[member]

    def _end_calls(self) -> None:
        """Ends the calls of those who were put out while they ran."""
        now = asyncio.get_running_loop().time()
        for member in self._ends.keys() & self._trust.ledger.revoked:
            for end in self._ends[member]:
                end.reschedule(now)

    def _check(self, method: str, key: bytes, context: Context) -> str:
        """The calling member's id, empty without a certificate.

        Raises `NotPermitted`, and `BadCertificate` for one who is a member no more.
        """
        member = member_calling(context.auth_context(), self._trust)
        callers = {Caller.LOCAL}
        if member is not None:
            callers = {Caller.MEMBER}
            keepers = self._trust.ledger.keepers.values()
            if any(keeper.node_id == member for keeper in keepers):
                callers.add(Caller.KEEPER)
        if key and hmac.compare_digest(key, self._owner):
            callers.add(Caller.OWNER)
        if not callers & permitted(method):
            raise NotPermitted(f"{method} is not for {_told(callers)} to call")
        calling_member.set(member or "")
        return member or ""


def _told(callers: set[Caller]) -> str:
    if Caller.LOCAL in callers:
        return "a program without a certificate"
    return "a member" if Caller.KEEPER not in callers else "a keeper"


def require_sender(sender_id: str) -> None:
    """Raises `BadCertificate` when the calling member says that it is another node."""
    member = calling_member.get()
    if member and sender_id and sender_id != member:
        raise BadCertificate(
            f"the caller's certificate is of node {member[:12]}, not {sender_id[:12]}",
            "join again with a code of `fleet invite`",
        )
