"""JoinService: one call is one joiner's try at an invitation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import grpc.aio
import structlog

from kakeya.v1 import join_pb2 as wire
from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.errors import FleetError, InvitationClosed, JoinCodeWrong, JoinRefused
from kakeya_fleet.fleet.trust.invitation import TRIES, Invitations, Try
from kakeya_fleet.fleet.trust.join_code import JoinCodeKind
from kakeya_fleet.node.admission.caller import caller_of_peer
from kakeya_fleet.node.admission.limits import JoiningLimits
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.joining.application import (
    Grant,
    JoinGrantContent,
    VerifiedApplication,
    verified,
)
from kakeya_fleet.node.joining.join_exchange import IssuerExchange, check_hello
from kakeya_fleet.node.joining.join_messages import JoinerHello
from kakeya_fleet.node.joining.join_wire import (
    application_from_bytes,
    grant_to_bytes,
    issuer_hello_to_wire,
    joiner_hello_from_wire,
    proof_from_wire,
    sealed_grant_to_wire,
)
from kakeya_fleet.node.rpc.refusals import MalformedMessage, TooManyCalls
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

_log = structlog.get_logger(__name__)

_Requests: TypeAlias = AsyncIterator[wire.JoinRequest]
_Context: TypeAlias = grpc.aio.ServicerContext[wire.JoinRequest, wire.JoinResponse]


class JoinServicer(join_pb2_grpc.JoinServiceServicer):
    """Answers joiners; `on_change` hears that an invitation may be over."""

    def __init__(
        self,
        node_id: str,
        invitations: Invitations,
        grant: Grant,
        events: EventLog,
        on_change: Callable[[], None],
        limits: JoiningLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_id = node_id
        self._invitations = invitations
        self._grant = grant
        self._events = events
        self._on_change = on_change
        self._clock = clock
        self._limits = limits
        self.count = 0
        """Machines that are joining now."""
        self.refused_count = 0
        """Those that found no place, so far."""

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def Join(  # type: ignore[override]  # noqa: N802
        self, request_iterator: _Requests, context: _Context
    ) -> None:
        """One join, from its hello to its grant."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                # Who is refused while it still writes hears INTERNAL in place of the reason
                # (grpc/grpc issue 36066): the hello is read first.
                hello = await self._hello(request_iterator)
                with self._place():
                    await self._join(hello, request_iterator, context)
        except TimeoutError:
            text = f"the join did not go on within {self._limits.seconds:g} s"
            raise MalformedMessage(text) from None

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self.count >= self._limits.at_once:
            self.refused_count += 1
            raise TooManyCalls(f"{self._limits.at_once} machines are joining here")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1

    async def _hello(self, requests: _Requests) -> JoinerHello:
        """Raises `MalformedMessage` and `ProtocolSkew`."""
        request = await anext(requests, None)
        if request is None:
            raise MalformedMessage("the join ended before its hello")
        hello = joiner_hello_from_wire(request)
        check_hello(hello)
        return hello

    async def _join(self, hello: JoinerHello, requests: _Requests, context: _Context) -> None:
        attempt = self._invitations.answer(hello.nameplate, self._clock())
        caller = caller_of_peer(context.peer())
        application = None
        try:
            secret = _secret(attempt, hello)
            exchange = IssuerExchange(hello, secret, self._node_id)
            await context.write(issuer_hello_to_wire(exchange.hello))
            application = await self._application(requests, exchange, hello, caller)
        finally:
            if application is None:
                self._failed(attempt, caller)
        grant = self._granted(attempt, application)
        await context.write(sealed_grant_to_wire(exchange.seal_grant(grant_to_bytes(grant))))

    async def _application(
        self, requests: _Requests, exchange: IssuerExchange, hello: JoinerHello, caller: str
    ) -> VerifiedApplication:
        """Raises `JoinCodeWrong`, with the tries that are left, and `MalformedMessage`."""
        left = self._invitations.tries_left(hello.nameplate)
        request = await anext(requests, None)
        if request is None:
            raise JoinCodeWrong("the joiner does not have this code", tries_left=str(left))
        try:
            data = exchange.open_application(proof_from_wire(request))
        except JoinCodeWrong as error:
            raise JoinCodeWrong(str(error), tries_left=str(left)) from error
        application = application_from_bytes(data)
        return verified(application, hello.node_id, exchange.transcript_hash, caller)

    def _granted(self, attempt: Try, application: VerifiedApplication) -> JoinGrantContent:
        """What the machine gets, once. Raises `InvitationClosed`, `JoinRefused`."""
        try:
            self._invitations.claim(attempt, self._clock())
        except InvitationClosed:
            self._invitations.fail(attempt)
            raise
        is_refused = False
        try:
            grant = self._grant(application)
        except (NodeError, FleetError) as error:
            is_refused = True
            self._tell_refused(application, error)
            raise JoinRefused(str(error), cause=error.reason) from error
        finally:
            # Whatever else fails may have made a certificate: then nobody joins by it again.
            if not is_refused:
                self._invitations.finish(attempt)
            elif self._invitations.release(attempt):
                self._tell_locked(attempt)
            self._on_change()
        self._events.add(
            EventKind.JOINED_BY_CODE,
            f"{application.name} joined by the invitation {attempt.invitation.nameplate}.",
            subject_node_id=application.node_id,
        )
        _log.info("joined_by_code", node_id=application.node_id, caller=application.caller)
        return grant

    def _failed(self, attempt: Try, caller: str) -> None:
        """A try came to nothing: a wrong code, most often, or a connection that was lost."""
        nameplate = attempt.invitation.nameplate
        _log.warning("join_failed", nameplate=nameplate, caller=caller, number=attempt.number)
        self._events.add(
            EventKind.JOIN_CODE_WRONG,
            f"A machine at {caller} tried the invitation {nameplate} and did not show that it has"
            f" the code: try {attempt.number} of {TRIES}.",
        )
        if self._invitations.fail(attempt):
            self._tell_locked(attempt)
        self._on_change()

    def _tell_refused(self, application: VerifiedApplication, error: Exception) -> None:
        self._events.add(
            EventKind.JOIN_REFUSED,
            f"{application.name} had the code and was refused: {error}.",
            subject_node_id=application.node_id,
        )

    def _tell_locked(self, attempt: Try) -> None:
        self._events.add(
            EventKind.INVITATION_LOCKED,
            f"The invitation {attempt.invitation.nameplate} is locked: its tries are spent.",
        )


def _secret(attempt: Try, hello: JoinerHello) -> bytes:
    invitation = attempt.invitation
    if hello.code_kind is JoinCodeKind.LONG:
        return invitation.secret
    return invitation.password.encode("ascii")
